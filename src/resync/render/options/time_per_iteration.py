"""Options of `time_per_iteration`."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from resync.config.parts import KindOptions, SyncOptions
from resync.settings.base import Check, Id, PositiveInt, PositiveNumber, Several
from resync.settings.errors import not_among
from resync.settings.options import option_names


class TimePerIteration(KindOptions):
    """Time of an iteration against the number of workers on several networks, and what stragglers cost.

    The wall-clock model as lines, published and measured times as points.
    """

    name: Literal["time_per_iteration"] = Field(default="time_per_iteration", init=False)
    parameters: PositiveInt = Field(description="parameters of the model, of four bytes each")
    algorithms: Several[Id] = Field(
        default=("allreduce", "sgp", "osgp", "adpsgd"),
        min_length=1,
        description="algorithms that have a line, with their default options",
    )
    networks: Several[Literal["ethernet_10g", "ethernet_25g", "infiniband_100g"]] = Field(
        default=("ethernet_10g", "ethernet_10g", "infiniband_100g"),
        min_length=1,
        description="link between workers, a panel each; published and measured times were taken on the first",
    )
    all_reduces: Several[Literal["ring", "halving_doubling", "recursive_doubling"]] = Field(
        default=("recursive_doubling", "ring", "ring"),
        min_length=1,
        description="all-reduce of each panel; on the first it is also calibrated on two published times",
    )
    delay: PositiveNumber = Field(
        default=0.1,
        description="mean of the exponential delay of every step in the panel of stragglers, as a share of computing",
    )
    most_workers: Annotated[int, Field(ge=2)] = Field(
        default=1024, description="number of workers up to which the lines go"
    )

    def checks(self) -> Iterator[Check]:
        """Lines are of algorithms that need no options and exchange something after every step."""
        allowed = [name for name in option_names("sync") if _is_drawn(SyncOptions.named(name))]
        for index, name in enumerate(self.algorithms):
            if name not in allowed:
                yield ("algorithms", index), not_among(name, allowed)


def _is_drawn(algorithm: type[SyncOptions]) -> bool:
    if any(field.is_required() for field in algorithm.model_fields.values()):
        return False
    traffic = algorithm.model_validate({}).traffic
    return traffic is not None and traffic.every == "step"

"""Options of `time_per_iteration`."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from resync.config.parts import KindOptions, SyncOptions
from resync.settings.base import Check, Id, PositiveInt, PositiveNumber, Settings, Several
from resync.settings.errors import not_among
from resync.settings.options import option_names


class Panel(Settings):
    """A network, and the experiment whose times on it are shown."""

    network: Literal["ethernet_10g", "ethernet_25g", "infiniband_100g"] = Field(description="link between workers")
    all_reduce: Literal["ring", "halving_doubling", "recursive_doubling"] = Field(
        default="ring", description="all-reduce algorithm of a series that does not choose one"
    )
    experiment: Id | None = Field(
        default=None,
        description="experiment whose published and measured times are the points, and whose series give the options "
        "of the algorithms; null: no points, and default options",
    )


class TimePerIteration(KindOptions):
    """Time per iteration against the number of workers on several networks, and the cost of stragglers.

    Lines are the wall-clock model, points are published and measured times.
    """

    name: Literal["time_per_iteration"] = Field(default="time_per_iteration", init=False)
    parameters: PositiveInt = Field(description="number of model parameters, of four bytes each")
    algorithms: Several[Id] = Field(
        default=("allreduce", "dpsgd", "sgp", "osgp", "adpsgd"),
        min_length=1,
        description="algorithms to draw as lines",
    )
    panels: Several[Panel] = Field(
        min_length=1, description="networks; the model is calibrated on two published times of the first one"
    )
    delay: PositiveNumber = Field(
        default=0.1,
        description="mean exponential delay of every step in the straggler panel, as a fraction of the computation",
    )
    most_workers: Annotated[int, Field(ge=2)] = Field(
        default=1024, description="number of workers at which the lines end"
    )

    def checks(self) -> Iterator[Check]:
        """Only algorithms that have no required options and communicate after every step can be drawn."""
        allowed = [name for name in option_names("sync") if _is_drawn(SyncOptions.named(name))]
        for index, name in enumerate(self.algorithms):
            if name not in allowed:
                yield ("algorithms", index), not_among(name, allowed)


def _is_drawn(algorithm: type[SyncOptions]) -> bool:
    if any(field.is_required() for field in algorithm.model_fields.values()):
        return False
    traffic = algorithm.model_validate({}).traffic
    return traffic is not None and traffic.every == "step"

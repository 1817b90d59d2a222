"""Options of generalised primal averaging."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from resync.config.parts import SyncOptions, Traffic
from resync.settings.base import Check, PositiveInt


class GPA(SyncOptions):
    """Generalised primal averaging, gradients between the optimizer's iterate and its average (Defazio et al. 2025).

    It smooths the outer steps of DiLoCo with one worker over all steps, so that there are no rounds.
    """

    label = "GPA"
    name: Literal["gpa"] = Field(default="gpa", init=False)
    mu_y: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.7, description="weight of the average in the point at which gradients are taken"
    )
    mu_x: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.9967, description="weight of the previous average in the average"
    )
    h: PositiveInt | None = Field(
        default=None,
        description="the H of the DiLoCo that is smoothed, from which mu_x = 0.9^(1/H) follows, as in the authors' "
        "table; null: mu_x itself",
    )

    def checks(self) -> Iterator[Check]:
        """Refuse two values for one weight."""
        if self.h is not None and self.mu_x != type(self).model_fields["mu_x"].default:
            yield ("mu_x",), f"found {self.mu_x:g} beside h, allowed: one of the two"

    @property
    def weight(self) -> float:
        """The weight of the previous average in the average."""
        return self.mu_x if self.h is None else 0.9 ** (1 / self.h)

    @property
    def averages_gradients(self) -> bool:
        """Gradients are averaged in every step."""
        return True

    @property
    def traffic(self) -> Traffic:
        """An average of the gradients over all workers in every step."""
        return Traffic()

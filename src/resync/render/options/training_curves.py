"""Options of `training_curves`."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from resync.config.metrics import DrawnMetric
from resync.config.parts import KindOptions
from resync.render.options._curves import Band, Cut
from resync.settings.base import Check, Several
from resync.settings.errors import not_among


class TrainingCurves(KindOptions):
    """Metrics of every evaluation against epochs, one panel per metric."""

    name: Literal["training_curves"] = Field(default="training_curves", init=False)
    metrics: Several[DrawnMetric] = Field(
        min_length=2, max_length=4, description="columns of metrics.csv, one panel per column"
    )
    log: Several[DrawnMetric] = Field(default=(), description="those of the metrics whose axis is logarithmic")
    band: Band = "range"
    cut: Cut = 0.1

    def checks(self) -> Iterator[Check]:
        """Require that what has a logarithmic axis is drawn."""
        yield from super().checks()
        if unknown := [metric for metric in self.log if metric not in self.metrics]:
            yield ("log",), not_among(unknown[0], self.metrics)

    @property
    def curves(self) -> tuple[str, ...]:
        return tuple(self.metrics)

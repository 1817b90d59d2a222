"""Options of `accuracy_curves`."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from resync.config.metrics import METRICS, DrawnMetric, extremes_of_workers
from resync.config.parts import KindOptions
from resync.render.options._curves import Cut
from resync.settings.base import Check


class AccuracyCurves(KindOptions):
    """Accuracy, error or loss against epochs or steps and against training time, side by side."""

    name: Literal["accuracy_curves"] = Field(default="accuracy_curves", init=False)
    metric: DrawnMetric = Field(default="val_top1", description="column of metrics.csv to draw")
    by: Literal["epoch", "step"] = Field(default="epoch", description="x axis of the left panel")
    unit: Literal["bits", "error %"] | None = Field(
        default=None,
        description="unit in which the metric is drawn: bits for a loss, error % for 100 - accuracy; null: its own",
    )
    band: Literal["range", "std", "workers"] = Field(
        default="range",
        description="band over the seeds: minimum to maximum, or ± one standard deviation; workers: minimum to maximum "
        "over the workers, for the mean over their own models",
    )
    cut: Cut = 0.15

    @property
    def curves(self) -> tuple[str, ...]:
        return self.metric, *(extremes_of_workers(self.metric) or () if self.band == "workers" else ())

    def checks(self) -> Iterator[Check]:
        """Require a unit and a band that the metric has."""
        metric = METRICS[self.metric]
        is_loss, is_accuracy = metric.unit == "nats", metric.unit == "%" and metric.better == "higher"
        if (self.unit == "bits" and not is_loss) or (self.unit == "error %" and not is_accuracy):
            allowed = "bits" if is_loss else "error %" if is_accuracy else ""
            yield (
                ("unit",),
                f"found {self.unit!r}, allowed for {self.metric}: {', '.join(filter(None, (allowed, 'null')))}",
            )
        if self.band == "workers" and not extremes_of_workers(self.metric):
            yield ("band",), f"found workers, allowed for {self.metric}: range, std"

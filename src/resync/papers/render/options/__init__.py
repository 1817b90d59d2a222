"""The options of every kind of figure and table. See `resync.base.settings.options`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from resync.base.settings.base import Check, Id, PositiveInt, PositiveNumber, Settings, Several, Text
from resync.base.settings.errors import not_among
from resync.papers.render.options.base import KindOptions
from resync.runs.metrics.registry import METRICS, DrawnMetric, TabledMetric, extremes_of_workers
from resync.workers.formulas.clock import LinkName


class AccuracyCurves(KindOptions):
    """Accuracy, error or loss against epochs or steps and, where it is known, against training time, side by side."""

    name: Literal["accuracy_curves"] = Field(default="accuracy_curves", init=False)
    metric: DrawnMetric = Field(default="val_top1", description="column of metrics.csv to draw")
    by: Literal["epoch", "step"] = Field(default="epoch", description="x axis of the left panel")
    unit: Literal["bits", "error %"] | None = Field(
        default=None,
        description="unit in which the metric is drawn: bits for a loss, error % for 100 - accuracy; null: its own",
    )
    band: Literal["seeds", "workers"] = Field(
        default="seeds",
        description="minimum to maximum over the seeds, or over the workers where the metric that the scale shows is a "
        "mean over their own models",
    )

    @property
    def curves(self) -> tuple[str, ...]:
        return self.metric, *(extremes_of_workers(self.metric) or () if self.band == "workers" else ())

    def checks(self) -> Iterator[Check]:
        metric = METRICS[self.metric]
        is_loss, is_accuracy = metric.unit == "nats", metric.unit == "%" and metric.better == "higher"
        if (self.unit == "bits" and not is_loss) or (self.unit == "error %" and not is_accuracy):
            allowed = ["bits"] * is_loss + ["error %"] * is_accuracy + ["null"]
            yield ("unit",), f"found {self.unit!r}, allowed for {self.metric}: {', '.join(allowed)}"
        means = self.metric, f"worker_{self.metric}_mean"
        if self.band == "workers" and not any(map(extremes_of_workers, means)):
            yield ("band",), f"found workers, allowed for {self.metric}: seeds"


class TrainingCurves(KindOptions):
    """Metrics of every evaluation against epochs, one panel per metric."""

    name: Literal["training_curves"] = Field(default="training_curves", init=False)
    metrics: Several[DrawnMetric] = Field(
        min_length=2, max_length=4, description="columns of metrics.csv, one panel per column"
    )
    log: Several[DrawnMetric] = Field(default=(), description="those of the metrics whose axis is logarithmic")
    axis: Text = Field(default="Epoch", description="title of the horizontal axis, where an epoch is a time")

    def checks(self) -> Iterator[Check]:
        yield from super().checks()
        if unknown := [metric for metric in self.log if metric not in self.metrics]:
            yield ("log",), not_among(unknown[0], self.metrics)

    @property
    def curves(self) -> tuple[str, ...]:
        return tuple(self.metrics)


class CostCurves(KindOptions):
    """A metric against the bytes that a worker has sent, against modelled time, and against steps, side by side."""

    name: Literal["cost_curves"] = Field(default="cost_curves", init=False)
    metric: DrawnMetric = Field(description="column of metrics.csv to draw")

    @property
    def curves(self) -> tuple[str, ...]:
        return (self.metric,)


class PeriodAndAccuracy(KindOptions):
    """Period H of every round (log2) above validation accuracy, both against epochs."""

    width = "column"
    name: Literal["period_and_accuracy"] = Field(default="period_and_accuracy", init=False)
    metric: DrawnMetric = Field(description="column of metrics.csv in the lower panel")

    @property
    def curves(self) -> tuple[str, ...]:
        return (self.metric, "h")


class MetricAgainstOption(KindOptions):
    """A number at the end of a run against one of its options, such as the period H, one point per series.

    Series without the option are horizontal lines. Open points and dotted lines are published values, pale ones
    those that were only recalled.
    """

    width = "column"
    name: Literal["metric_against_option"] = Field(default="metric_against_option", init=False)
    option: Annotated[str, Field(pattern=r"^[a-z0-9_]+(\.[a-z0-9_]+)*$")] = Field(
        description="setting of a run with numbers as values, as its path in run.yaml, such as `sync.period.h`"
    )
    axis: Text | None = Field(default=None, description="title of the horizontal axis; null: the option")
    metric: TabledMetric = Field(default="val_top1", description="number at the end of a run, in the left panel")
    time: bool = Field(default=False, description="whether a right panel shows the time per step")


class NetworkPanel(Settings):
    """A network, and the experiment whose times on it are shown."""

    network: LinkName = Field(description="link between workers")
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

    of_paper_scale = True

    name: Literal["time_per_iteration"] = Field(default="time_per_iteration", init=False)
    parameters: PositiveInt = Field(description="number of model parameters, of four bytes each")
    panels: Several[NetworkPanel] = Field(
        min_length=1, description="networks; the model is calibrated on two published times of the first one"
    )


class PeriodSchedule(KindOptions):
    """Learning rate above the period H of every round (log2), against epochs, computed from the configuration.

    It needs no training.
    """

    planned = True
    width = "column"
    name: Literal["period_schedule"] = Field(default="period_schedule", init=False)


class AveragingError(KindOptions):
    """Remaining deviation from the mean after each mixing step of a topology, computed from its mixing matrices.

    It needs no training.
    """

    planned = True
    width = "column"
    name: Literal["averaging_error"] = Field(default="averaging_error", init=False)


class WorkerLanes(KindOptions):
    """Who computes, who waits and who is away in simulated time: a panel for each series, a lane for each worker.

    It needs no training.
    """

    planned = True
    name: Literal["worker_lanes"] = Field(default="worker_lanes", init=False)
    seconds: PositiveNumber = Field(description="simulated seconds that are shown")


class SlowSDE(KindOptions):
    """Slow SDE of Local SGD on a problem with two parameters: predictions as lines and simulations as points.

    It needs no training and shows no series.
    """

    planned = True
    shows_series = False
    name: Literal["slow_sde"] = Field(default="slow_sde", init=False)


class MetricsTable(KindOptions):
    """Table of chosen final metrics of every method, with published values beside ours."""

    name: Literal["metrics_table"] = Field(default="metrics_table", init=False)
    metrics: Several[TabledMetric] = Field(
        min_length=1,
        description="metrics in the order of their columns; times are modelled where workers are simulated",
    )
    decimals: Annotated[int, Field(ge=0, le=6)] | None = Field(
        default=None, description="number of decimals of the first metric; null: as many as it needs"
    )


class WallClock(KindOptions):
    """Table of hours and communication hours of every method.

    Shown are published times, the wall-clock model calibrated on two published totals, and at paper scale those
    measured here.
    """

    of_paper_scale = True

    name: Literal["wall_clock"] = Field(default="wall_clock", init=False)


class SearchedSteps(KindOptions):
    """Steps to the target at the learning rate that a search has found, against the number of workers.

    A panel for each experiment, both axes logarithmic; open points are means of published records.
    """

    name: Literal["searched_steps"] = Field(default="searched_steps", init=False)

    @property
    def curves(self) -> tuple[str, ...]:
        return "tuned_steps", "searched_workers"


class SearchRecords(KindOptions):
    """Table of the mean steps to the target of every series and number of workers; its CSV has every search."""

    name: Literal["search_records"] = Field(default="search_records", init=False)

    @property
    def curves(self) -> tuple[str, ...]:
        return "tuned_steps", "tuned_lr", "searched_workers"


class FinalErrors(KindOptions):
    """The error of trainings with the rates that searches have found, against their steps.

    A panel for each experiment, with a logarithmic error; open circles are published values.
    """

    name: Literal["final_errors"] = Field(default="final_errors", init=False)

    @property
    def curves(self) -> tuple[str, ...]:
        return "final_step", "final_error"


class FinalValues(KindOptions):
    """Table of the rates that searches have found and of the errors of trainings with them, beside published ones."""

    name: Literal["final_values"] = Field(default="final_values", init=False)

    @property
    def curves(self) -> tuple[str, ...]:
        return "final_step", "final_error"


class EvaluationLog(KindOptions):
    """Table of every evaluation of runs with simulated times, in the columns of the log of Liu et al. 2024."""

    name: Literal["evaluation_log"] = Field(default="evaluation_log", init=False)

    @property
    def curves(self) -> tuple[str, ...]:
        return "val_loss", "val_top1", "virtual_seconds"


class TimeCurves(KindOptions):
    """Validation loss against simulated time, a panel for each experiment; all runs need a virtual clock."""

    name: Literal["time_curves"] = Field(default="time_curves", init=False)

    @property
    def curves(self) -> tuple[str, ...]:
        return "val_loss", "virtual_seconds"

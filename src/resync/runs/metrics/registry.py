"""Every metric of the results, declared once: its meaning, where it is recorded, and how its values compare.

A new metric needs an entry in `_DECLARED` and the code that computes it; tables, figures, published values, claims,
the audit and imported logs take it from here.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, partial
from math import inf, isfinite, isinf
from typing import TYPE_CHECKING, Any, Literal

SECONDS_PER_HOUR = 3600

RATIO_TOLERANCE = 0.1
"""Relative difference between two ratios of times that still counts as reproduced."""
RATIO_TOLERANCE_REASON = "repeats on one cluster differ by 4 % (SlowMo's table 2), and clusters differ by more"

_ROUNDING = 1e-9
"""By how much a value that is computed, such as a mean of percentages, may leave its range."""

File = Literal["metrics", "steps", "summary"]
"""metrics.csv has one row per evaluation, steps.csv one per sampled step, summary.json the numbers at the end."""

_EVALUATIONS: tuple[File, ...] = ("metrics", "summary")
_BOTH: tuple[File, ...] = ("metrics", "steps")
_STEPS: tuple[File, ...] = ("steps",)
_SUMMARY: tuple[File, ...] = ("summary",)


@dataclass(frozen=True)
class Need:
    """What the settings of a run must have for a metric to be measured, in words and as a condition."""

    text: str
    met_by: Callable[[Any], bool]


def _task(name: str) -> Need:
    return Need(f"data for {name.replace('_', ' ')}", lambda run: run.task == name)


def _setting(name: str) -> Need:
    return Need(f"evaluation.{name}", lambda run: getattr(run.evaluation, name) is not None)


CLASSIFICATION, TRANSLATION, LANGUAGE_MODEL, QUADRATICS = map(
    _task, ("classification", "translation", "language_model", "quadratics")
)
NOISY_TRAININGS = 39
"""Final trainings that differ in their noise only: one more lies within their range with a probability of 95 %."""
LEAST_ERROR = 1e-13
"""A smaller error of a final training, a difference of two sums, may be rounding, and negative: it has no digits."""
SEARCH = Need("search", lambda run: run.search is not None)
FINAL = Need("search.final", lambda run: run.search is not None and run.search.final is not None)
NOISE = Need("search.final.noise", lambda run: FINAL.met_by(run) and run.search.final.noise is not None)
BEAM_SEARCH, SHARPNESS, ESTIMATE = map(_setting, ("beam_search", "sharpness_batches", "random_batches"))
OWN_MODELS = Need("evaluation.also: workers", lambda run: run.evaluation.also == "workers")
SWA = Need("evaluation.swa_from", lambda run: run.evaluation.swa_from is not None)
CLOCK = Need("a virtual clock", lambda run: run.clock is not None)
SEVERAL_WORKERS = Need("more than one worker", lambda run: run.workers > 1)


@dataclass(frozen=True)
class Metric:
    """One metric: a column of a table, an entry of the summary, or a number of the configuration.

    Attributes:
        title, unit: for axes and tables.
        meaning: for the documentation.
        files: where it is recorded; empty for a number that follows from the configuration alone.
        span: what a value covers: the `moment` of its row, the `interval` since the previous row, the `total` since
            step 0, or the `step` alone.
        better: which of two values is better; None where neither is.
        tolerance: difference that still counts as reproduced if a published value declares no tolerance, in `unit`.
        tolerance_reason: why differences of this size are to be expected of two faithful programs.
        depends_on: `training`; `hardware` if it depends as much on the machine; `configuration` if no run is needed
            to know it, so that it has no spread over seeds.
        evaluated: whether it is of a model, as it is at an evaluation.
        optional: whether a file may lack it, because not every run has it; so may every evaluated metric.
        needs: what a run must have for it to be measured; empty: every run measures it.
        of_workers: whether it may also be of every worker's own model, as `worker_<name>_mean`, `_min` and `_max`, and
            of the mean of evaluated models, as `swa_<name>`.
        best: whether the best value of all evaluations is recorded too, as `best_<name>`.
        compared: whether published values and claims may refer to it.
        whole: whether its values are integers.
        least, most: the smallest and the largest value that it can have.
    """

    title: str
    unit: str
    meaning: str
    files: tuple[File, ...]
    span: Literal["moment", "interval", "total", "step"] = "moment"
    better: Literal["higher", "lower"] | None = None
    tolerance: float | None = None
    tolerance_reason: str = ""
    depends_on: Literal["training", "hardware", "configuration"] = "training"
    evaluated: bool = False
    optional: bool = False
    needs: tuple[Need, ...] = ()
    of_workers: bool = False
    best: bool = False
    compared: bool = False
    whole: bool = False
    least: float = 0.0
    most: float = inf

    @property
    def grows(self) -> bool:
        """Whether its values never fall from one evaluation to the next; a share of what has been, in %, may."""
        return self.span == "total" and self.unit != "%"

    @property
    def allowed(self) -> str:
        """Its range in words."""
        if isinf(self.least):
            return "any number"
        return f"a number >= {self.least:g}" if isinf(self.most) else f"{self.least:g} to {self.most:g}"

    def has(self, value: float) -> bool:
        """Whether a value lies within the range, to rounding. NaN and infinities say that a training diverged."""
        if isinf(value) and self.grows:
            return False
        slack = _ROUNDING * max(1.0, abs(value))
        return not isfinite(value) or self.least - slack <= value <= self.most + slack

    @property
    def sign(self) -> int:
        """1 if higher is better, -1 if lower is better, 0 for neither."""
        return {"higher": 1, "lower": -1, None: 0}[self.better]

    def best_of(self, values: Iterable[float]) -> float | None:
        """The best finite value; None if there is none."""
        choose = max if self.better == "higher" else min
        return choose((value for value in values if isfinite(value)), default=None)


_evaluated = partial(Metric, files=_EVALUATIONS, evaluated=True, compared=True)
_score = partial(_evaluated, best=True)
_searched = partial(Metric, files=_EVALUATIONS, evaluated=True, needs=(SEARCH,))
_final = partial(Metric, files=_EVALUATIONS, evaluated=True, needs=(FINAL,))
_noisy = partial(Metric, files=_EVALUATIONS, evaluated=True, better="lower", needs=(NOISE,))
_WITH_NOISE = f"{NOISY_TRAININGS} trainings with the rate found"
_top = partial(
    Metric, unit="%", files=_EVALUATIONS, better="higher", best=True, needs=(CLASSIFICATION,), compared=True, most=100
)
_bleu = partial(_score, unit="BLEU", better="higher", needs=(BEAM_SEARCH,), most=100)
_of_step = partial(Metric, files=_STEPS, span="step")
_step_time = partial(_of_step, unit="s", depends_on="hardware")
_time = partial(Metric, unit="s", span="total", better="lower", depends_on="hardware", compared=True)
_end = partial(_time, files=_SUMMARY)

_DECLARED = {
    "step": Metric(
        "Step", "steps", "local steps completed by every worker; 0 is the evaluation before training", _BOTH,
        span="total", whole=True,
    ),
    "epoch": Metric("Epoch", "epochs", "steps / steps_per_epoch", _BOTH, span="total"),
    "round": Metric(
        "Round", "rounds", "rounds completed; all-reduce and gossip complete one in every step", _BOTH, span="total",
        whole=True,
    ),
    "h": Metric("Period H", "steps", "local steps of the round that the step is in", _BOTH),
    "lr": Metric("Learning rate", "1", "learning rate of the step", _BOTH),
    "train_loss": Metric(
        "Training loss", "nats", "mean over the workers and the steps since the row before", _EVALUATIONS,
        span="interval", better="lower", tolerance=0.03,
        tolerance_reason="programs average it over different steps, and augment differently", best=True, compared=True,
    ),
    "train_top1": _top(
        "Training top-1 accuracy",
        meaning="of the batches trained on since the row before, in training mode, against the labels trained on: "
        "with label noise the noisy ones, with Mixup those with the larger share", span="interval", tolerance=0.3,
        tolerance_reason="that of the validation accuracy",
        optional=True,
    ),
    "train_top5": _top(
        "Training top-5 accuracy", meaning="as train_top1, with the label among the five largest outputs",
        span="interval", tolerance=0.3, optional=True,
    ),
    "train_nll": Metric(
        "Training NLL", "nats", "per token: train_loss without label smoothing", _EVALUATIONS, span="interval",
        better="lower", tolerance=0.03, tolerance_reason="that of the training loss", best=True, compared=True,
        optional=True, needs=(TRANSLATION,),
    ),
    "step_loss": _of_step(
        "Training loss", "nats",
        "mean over the workers; that of worker 0 if they run asynchronously, as for all columns of a step",
        better="lower",
    ),
    "gradient_norm": _of_step(
        "Gradient norm", "1",
        "L2 norm of the gradient with which the optimizer steps, before clipping; mean over the workers; NaN if the "
        "engine does not tell", optional=True,
    ),
    "parameter_norm": Metric(
        "Parameter norm", "1", "L2 norm of the parameters after the step; mean over the workers", _STEPS, optional=True,
    ),
    "loss_scale": Metric(
        "Loss scale", "1", "factor of the loss in fp16 after the step; the smallest of the workers", _STEPS,
        optional=True,
    ),
    "val_loss": _score(
        "Validation loss", "nats", "of the consensus model, per token or character for text", better="lower",
        tolerance=0.03, tolerance_reason="about 2 % of the losses that the papers print", of_workers=True,
    ),
    "val_top1": _top(
        "Validation top-1 accuracy", meaning="of the consensus model", tolerance=0.3,
        tolerance_reason="a few standard deviations over seeds, for differences between programs", evaluated=True,
        of_workers=True,
    ),
    "val_top5": _top(
        "Validation top-5 accuracy", meaning="of the consensus model", tolerance=0.2, evaluated=True, of_workers=True,
    ),
    "val_loss_estimate": _score(
        "Estimated validation loss", "nats",
        "as val_loss, on random windows of the validation text, other ones in every evaluation (nanoGPT)",
        better="lower", tolerance=0.03, tolerance_reason="that of the validation loss", needs=(ESTIMATE,),
    ),
    "val_bits_per_character": _score(
        "Validation loss", "bits", "per character: val_loss / ln 2", better="lower", tolerance=0.04,
        tolerance_reason="that of the validation loss, in bits", of_workers=True, needs=(LANGUAGE_MODEL,),
    ),
    "val_perplexity": _score(
        "Validation perplexity", "1", "exp(val_loss) per token", better="lower", tolerance=0.15,
        tolerance_reason="that of the validation loss, at a perplexity of about 5", of_workers=True,
        needs=(TRANSLATION,), least=1,
    ),
    "test_bleu": _bleu("Test score", meaning="0 to 100, of the consensus model's translations, by sacreBLEU"),
    "test_bleu_tokenised": _bleu(
        "Tokenised score",
        meaning="0 to 100, like test_bleu, of tokens by Moses with compounds split: what fairseq reports",
        tolerance=0.5, tolerance_reason="about the 95 % bootstrap interval of the score on 3,000 sentences",
    ),
    "sharpness": _evaluated(
        "Sharpness (trace of the Hessian)", "1", "of the training loss at the consensus model, estimated",
        better="lower", needs=(SHARPNESS,), least=-inf,
    ),
    "suboptimality": _evaluated(
        "Error", "1", "mean over the workers of the values of their functions at the consensus, minus the smallest one",
        better="lower", needs=(QUADRATICS,),
    ),
    "searched_workers": _searched(
        "Workers", "workers", "for which a learning rate was searched: a row for each, or for each look at a training",
    ),
    "tuned_steps": _evaluated(
        "Steps to the target", "steps", "fewest steps to an error of 1e-6 that a search of the learning rate has found",
        better="lower", tolerance=0.0, tolerance_reason="nothing is random after the functions are drawn",
        needs=(SEARCH,),
    ),
    "tuned_lr": _evaluated(
        "Learning rate found", "1", "that of the search: where it looks for the fastest training, half of its rate",
        tolerance=1e-12, tolerance_reason="all rates of a bisection are multiples of powers of two", needs=(SEARCH,),
    ),
    "search_trials": _searched("Trainings", "1", "of the search, at a learning rate each"),
    "search_exhausted": _searched(
        "Search cut short", "1", "1 if the search ended at its largest number of trainings, else 0", most=1,
    ),
    "final_step": _final("Steps", "steps", "of the training with the rate found"),
    "final_error": _final(
        "Error", "1", "of the training with the rate found, without noise", better="lower", least=-inf, compared=True,
    ),
    "noisy_error": _noisy("Error with noise", "1", f"mean of {_WITH_NOISE}", compared=True),
    "noisy_error_min": _noisy("Smallest error with noise", "1", f"of {_WITH_NOISE}"),
    "noisy_error_max": _noisy("Largest error with noise", "1", f"of {_WITH_NOISE}"),
    "consensus_distance": _evaluated(
        "Consensus distance", "1",
        "root of the mean over the workers of the squared L2 distance of their own parameters from the average (Kong "
        "et al. 2021)", better="lower", needs=(SEVERAL_WORKERS,),
    ),
    "virtual_seconds": Metric(
        "Simulated time", "s", "on the run's virtual clock", _EVALUATIONS, span="total", better="lower",
        depends_on="configuration", optional=True, needs=(CLOCK,), compared=True,
    ),
    "bytes_sent": Metric(
        "Bytes sent", "bytes", "by one worker", _EVALUATIONS, span="total", better="lower", depends_on="configuration",
    ),
    "volume_percent": Metric(
        "Communication volume", "%", "of an all-reduce in every step", _EVALUATIONS, span="total", better="lower",
        depends_on="configuration", compared=True,
    ),
    "training_seconds": _time(
        "Training clock", meaning="data, forward, backward, optimizer and communication, without evaluation",
        files=_EVALUATIONS,
    ),
    "communication_seconds": _time(
        "Communication clock",
        meaning="the part of the training clock spent in exchanges; NaN where it cannot be told from computing",
        files=_EVALUATIONS,
    ),
    "evaluation_seconds": Metric(
        "Evaluation clock", "s", "in no other clock", _EVALUATIONS, span="total", depends_on="hardware",
    ),
    "step_data_seconds": _step_time(
        "Data time", meaning="waiting for the batch of the step, and making it on the device",
    ),
    "step_compute_seconds": _step_time(
        "Computing time",
        meaning="in forward, backward and optimizer; with communication where it cannot be told from computing",
    ),
    "step_communication_seconds": _step_time(
        "Communication time", meaning="in exchanges; NaN where it cannot be told from computing",
    ),
    "step_bytes": _of_step("Bytes sent", "bytes", "by one worker", depends_on="configuration"),
    "training_hours": _end("Training time", unit="h", meaning="training clock at the end"),
    "communication_hours": _end("Communication time", unit="h", meaning="communication clock at the end"),
    "seconds_per_step": _end("Time per step", meaning="training clock / steps"),
    "wall_seconds": _end("Wall time", meaning="of the run, start-up included"),
    "steps": Metric("Steps", "steps", "local steps of the run", _SUMMARY, span="total"),
    "rounds": Metric(
        "Rounds", "rounds", "of the run", _SUMMARY, span="total", depends_on="configuration", compared=True,
    ),
    "wire_bytes": Metric("Bytes on the wire", "bytes", "sent by one process to others", _SUMMARY, span="total"),
    "parameters": Metric("Parameters", "1", "of one worker's model", _SUMMARY, depends_on="configuration"),
    "averaging_error": Metric(
        "Averaging error", "1",
        "fraction of the squared deviations from the mean that remains after ceil(log2 workers) mixing steps of the "
        "topology", (), depends_on="configuration", compared=True,
    ),
    "dose": Metric(
        "Dose", "1", "sum over the steps of eta^2 (K - 1) / (2 batch size): the drift that local steps can add", (),
        depends_on="configuration", compared=True,
    ),
}  # fmt: skip


Statistic = Literal["mean", "min", "max"]
STATISTICS: tuple[Statistic, ...] = ("mean", "min", "max")
_WORDS: dict[Statistic, str] = {"mean": "mean", "min": "smallest", "max": "largest"}


def worker_metric(name: str, statistic: Statistic) -> str:
    """The name of a statistic over the workers' own models."""
    return f"worker_{name}_{statistic}"


def _of_workers(name: str, metric: Metric, statistic: Statistic) -> Metric:
    """The entry of a statistic over the workers' own models, of which the mean has a best value."""
    word = _WORDS[statistic]
    return replace(
        metric,
        title=f"Workers' {word} {metric.title[0].lower()}{metric.title[1:]}",
        meaning=f"{word} {name} of the workers' own models, each with its own running BatchNorm statistics",
        needs=(*metric.needs, OWN_MODELS),
        of_workers=False,
        best=statistic == "mean",
    )


def swa_metric(name: str) -> str:
    """The name of a metric of the mean of the models evaluated so far."""
    return f"swa_{name}"


def _of_swa(name: str, metric: Metric) -> Metric:
    return replace(
        metric,
        title=f"SWA {metric.title[0].lower()}{metric.title[1:]}",
        meaning=f"{name} of the mean of the consensus models evaluated from evaluation.swa_from on",
        needs=(*metric.needs, SWA),
        of_workers=False,
        best=False,
    )


_SCORED = {name: metric for name, metric in _DECLARED.items() if metric.of_workers}
_MEASURED = (
    _DECLARED
    | {
        worker_metric(name, statistic): _of_workers(name, metric, statistic)
        for name, metric in _SCORED.items()
        for statistic in STATISTICS
    }
    | {swa_metric(name): _of_swa(name, metric) for name, metric in _SCORED.items()}
)


def _best(metric: Metric) -> Metric:
    title = f"Best {metric.title[0].lower()}{metric.title[1:]}"
    which = "largest" if metric.better == "higher" else "smallest"
    return replace(metric, title=title, meaning=f"{which} of all evaluations", files=_SUMMARY, span="total", best=False)


METRICS: dict[str, Metric] = _MEASURED | {
    f"best_{name}": _best(metric) for name, metric in _MEASURED.items() if metric.best
}
"""Every metric by its name."""


def names_where(condition: Callable[[Metric], bool]) -> tuple[str, ...]:
    """The names of the metrics that meet a condition, in the order of declaration."""
    return tuple(name for name, metric in METRICS.items() if condition(metric))


@cache
def columns(file: File) -> tuple[str, ...]:
    """The columns that a file may have."""
    return names_where(lambda metric: file in metric.files)


@cache
def required_columns(file: File) -> tuple[str, ...]:
    """The columns that a file always has."""
    return names_where(lambda metric: file in metric.files and not (metric.evaluated or metric.optional))


def extremes_of_workers(name: str) -> tuple[str, str] | None:
    """The smallest and largest beside a mean over the workers' own models; None for any other metric."""
    stem = name.removesuffix("_mean")
    extremes = f"{stem}_min", f"{stem}_max"
    return extremes if name != stem and METRICS.keys() >= set(extremes) else None


def unmeasured(run: Any, name: str) -> str:
    """What a run with these settings lacks that a metric needs; empty if it measures the metric."""
    return " and ".join(need.text for need in METRICS[name].needs if not need.met_by(run))


COMPARED = names_where(lambda metric: metric.compared)
"""Metrics that published values and claims may refer to."""

EXACT = names_where(lambda metric: metric.compared and metric.depends_on == "configuration")
"""The compared metrics that follow from the configuration: they have no spread, and no run is needed to know them."""

BEST = names_where(lambda metric: metric.best)
"""Metrics whose best value is recorded."""

EVALUATED = names_where(lambda metric: metric.evaluated and "metrics" in metric.files)
"""Metrics of a model: a row that has one is an evaluation."""

AXES = ("epoch", "step")
"""Columns of metrics.csv for the horizontal axis of curves."""

DRAWN = tuple(name for name in columns("metrics") if name not in AXES)
"""Columns of metrics.csv for the vertical axis of curves."""

TABLED = names_where(lambda metric: metric.compared and "summary" in metric.files)
"""Numbers at the end of a run that a table can show."""

if TYPE_CHECKING:
    ComparedMetric = str
    DrawnMetric = str
    TabledMetric = str
else:  # for fields of models: the allowed names, also in schemas and error messages
    ComparedMetric = Literal[COMPARED]
    DrawnMetric = Literal[DRAWN]
    TabledMetric = Literal[TABLED]

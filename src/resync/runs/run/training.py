"""The settings of one training: those that decide its result, except names and seed, and those of its execution."""

from collections.abc import Iterator, Mapping
from functools import reduce
from itertools import pairwise
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from resync.base.settings.base import (
    Check,
    Count,
    Items,
    PositiveInt,
    PositiveNumber,
    Settings,
    checks_failed,
    reading_of,
    wrong,
)
from resync.base.settings.errors import show
from resync.base.settings.options import Part, TrainingShape
from resync.runs.metrics.evaluation import EarlyStopping, Evaluation, Plateau
from resync.runs.run.execution import Execution
from resync.tasks.data_sets.declaration import DataOptions
from resync.tasks.data_sets.readers import MemoryReader
from resync.tasks.models.options.base import ModelOptions
from resync.workers.engine.settings import LossScale
from resync.workers.formulas.clock import VirtualClock
from resync.workers.formulas.periods import Period
from resync.workers.formulas.schedules import AnySchedule, Schedule
from resync.workers.optim.options.base import OptimizerOptions
from resync.workers.sync.options.base import SyncOptions

_TASKS_WITH = {
    ("search",): ("quadratics",),
    ("loss", "label_noise"): ("classification",),
    ("loss", "mixup"): ("classification",),
    ("heterogeneity",): ("classification",),
    ("memory_format",): ("classification",),
    ("evaluation", "sharpness_batches"): ("classification", "language_model"),
    ("evaluation", "beam_search"): ("translation",),
    ("evaluation", "random_batches"): ("language_model",),
    ("evaluation", "sample_characters"): ("language_model",),
}
"""The tasks that have a setting, by its keys; all tasks have the others."""


def task_of(facts: Mapping[str, Any]) -> str:
    """The task of a data set with these facts."""
    return str(facts.get("task", "classification"))


class Loss(Settings):
    """The training loss: cross entropy."""

    label_smoothing: float = Field(
        default=0.0, ge=0, lt=1, description="probability mass moved from the label to all classes"
    )
    label_noise: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="probability that a training label is replaced by a random one of the other classes; null: 0",
    )
    mixup: PositiveNumber | None = Field(
        default=None,
        description="parameter of the Beta distribution that mixes the images of a micro-batch (Mixup); null: no Mixup",
    )


class Heterogeneity(Settings):
    """A partition of the training samples over the workers, in which their proportions of classes differ."""

    alpha: PositiveNumber = Field(
        description="parameter of the Dirichlet distribution of a worker's proportions of classes (with equally large "
        "classes, the same for each); small: few classes per worker, large: all alike"
    )


class FinalTraining(Settings):
    """A training with the rate that a search has found, whose error is looked at every so many steps.

    It ends early with an error below 1e-12. With noise 39 trainings are beside one without: another one lies between
    the smallest and the largest of these with a probability of 95 %.
    """

    steps: PositiveInt = Field(description="its length")
    every: PositiveInt = Field(default=1, description="steps between two looks at the error, of which the last counts")
    most_lr: PositiveNumber | None = Field(default=None, description="largest learning rate; null: that of the search")
    lr_by_delay: Literal[True] | None = Field(
        default=None,
        description="true: the learning rate is multiplied by that by which RelaySum/Model shortens steps, since a new "
        "worker's step counts before those of far workers arrive; null: it is not",
    )
    weight: float | None = Field(
        default=None, gt=0, lt=1, description="sync.weight of this training; null: that of the search"
    )
    noise: PositiveNumber | None = Field(
        default=None, description="root of the mean squared norm of what is added to every gradient; null: 0"
    )

    def checks(self) -> Iterator[Check]:
        if self.every >= self.steps:
            yield wrong("every", self.every, f"less than its {self.steps} steps")


class RateSearch(Settings):
    """A search of the learning rate, from that of the schedule on, for each of several numbers of workers.

    Each of its trainings has at most `epochs` times `steps_per_epoch` steps. See `resync.workers.formulas.rate_search`.
    """

    rule: Literal["fastest", "settled", "given"] = Field(
        description="fastest: the rate with which the error first falls below 1e-6; settled: the largest one with "
        "which it settles there; given: that of the schedule, without a search"
    )
    trials: PositiveInt = Field(description="largest number of trainings of a search")
    final: FinalTraining | None = Field(default=None, description="training with the rate found; null: none")
    workers: Items[PositiveInt] = Field(
        min_length=1, description="numbers of workers, each larger than the one before; the last is that of the run"
    )

    def checks(self) -> Iterator[Check]:
        if any(second <= first for first, second in pairwise(self.workers)):
            yield wrong("workers", list(self.workers), "numbers that increase")
        if self.rule == "given" and not self.final:
            yield wrong("final", "null with rule given", "a training, since nothing is searched")


class ResultSettings(Settings):
    """The settings that decide the result of a run, except its name and seed."""

    data: DataOptions = Field(description="data set")
    model: ModelOptions = Field(description="model")
    start_from: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9][a-z0-9_]*/[a-z0-9][a-z0-9_]*(/seed([0-9]+|%[1-9][0-9]*))?(@step[0-9]+)?$",
        description="run of the same paper and scale from whose averaged model the training starts, as "
        "experiment/series/seed<k>, or experiment/series/seed%<n> for the run whose seed is that of this run modulo n, "
        "or experiment/series for the run with the same seed; followed by @step<n> for a checkpoint that it keeps "
        "(checkpoint.keep_epochs); null: initial weights of the seed",
    )
    start_state: Literal["model", "all"] | None = Field(
        default=None,
        description="what is taken from the checkpoint that start_from names: model, its averaged model, from which "
        "the training starts with step 0; all, the weights, optimizer state and counts of every worker, with which the "
        "training continues at that step; null: model",
    )
    start_checkpoint: str | None = Field(
        default=None,
        min_length=1,
        description="checkpoint of the original Local SGD code from whose model the training starts, a file below "
        "RESYNC_DATA; null: none",
    )
    weights_seed: Count | None = Field(
        default=None,
        description="initial weights are those that torch.manual_seed of this number gives the model, whatever the "
        "run's seed, as in code that seeds torch just before it builds a model; null: those of the seed",
    )
    workers: PositiveInt = Field(description="number of replicas K, each with its own data stream")
    gpus_per_worker: PositiveInt = Field(
        default=1,
        description="GPUs of a worker: each takes the gradient of an equal part of its batch, which are averaged. As "
        "with torch's DDP, BatchNorm normalises on each GPU, and its running statistics are those of the first",
    )
    batch_size: PositiveInt = Field(
        description="samples per step over all workers (for text, buckets of sentence pairs); a multiple of workers "
        "times gpus_per_worker"
    )
    sampling: Literal["without_replacement", "with_replacement"] = Field(
        default="without_replacement", description="how a worker's data stream draws the samples of an epoch"
    )
    heterogeneity: Heterogeneity | None = Field(
        default=None,
        description="division of the training samples by class into one fixed share per worker, all of equal size; a "
        "worker draws from its own only; null: all workers draw from all samples",
    )
    epochs: Count = Field(
        description="length of the training; 0: the model of start_from or start_checkpoint is evaluated, not trained"
    )
    steps_per_epoch: PositiveInt = Field(
        default=None,  # type: ignore[assignment]  # replaced by _steps_from_data
        description="steps per epoch; null: floor(training samples / batch_size), not allowed for text",
        json_schema_extra={"type": ["integer", "null"], "default": None},
    )
    last_batch: Literal["smaller"] | None = Field(
        default=None,
        description="smaller: where steps_per_epoch rounds up, the last batch of an epoch has the samples left, "
        "as with torch's loader; null: it is completed from the start of the epoch's order",
    )
    micro_batch_size: PositiveInt | None = Field(
        default=None,
        description="samples of a GPU per forward pass, with gradient accumulation; null: all its samples of the step",
    )
    loss: Loss = Field(default=Loss(), description="training loss")
    clip_norm: PositiveNumber | None = Field(
        default=None, description="largest L2 norm of a worker's gradient, which is clipped to it; null: no limit"
    )
    optimizer: OptimizerOptions = Field(description="inner optimizer; its learning rate is in schedule")
    schedule: AnySchedule = Field(description="learning rate as a function of the step")
    plateau: Plateau | None = Field(
        default=None, description="learning-rate reductions when the validation loss stops falling; null: none"
    )
    early_stopping: EarlyStopping | None = Field(
        default=None, description="end of the training when the validation loss stops falling; null: the last epoch"
    )
    sync: SyncOptions = Field(description="synchronisation algorithm")
    search: RateSearch | None = Field(
        default=None,
        description="search of the learning rate, in place of a single training; null: the rate of the schedule",
    )
    clock: VirtualClock | None = Field(
        default=None, description="simulated times of what workers do; null: none are known, and none are needed"
    )
    random_numbers: Literal["asyncdiloco"] | None = Field(
        default=None,
        description="asyncdiloco: initial weights, the order of samples and choices of streams are drawn from the "
        "generators of torch, Python and numpy with the seed, in the order of the notebook of Liu et al. 2024; null: "
        "from streams named by the seed and the purpose",
    )
    evaluation: Evaluation = Field(default=Evaluation(), description="evaluation of the consensus model")
    precision: Literal["fp32", "tf32", "bf16", "fp16"] = Field(
        default="fp32",
        description="number format of matrix products: tf32 on GPUs, bf16 and fp16 with autocast; parameters stay fp32",
    )
    loss_scale: LossScale | None = Field(default=None, description="scale of the loss in fp16; null: the defaults")

    @field_validator("batch_size")
    @classmethod
    def _fits_data(cls, value: int, info: ValidationInfo) -> int:
        data = info.data.get("data")
        if reading_of(info).partial or data is None:
            return value
        samples = data.facts["train_samples"]
        if value > samples:
            allowed = f"at most {samples}, the training samples of {data.name}"
            raise checks_failed("batch_size", [wrong((), value, allowed)])
        return value

    @field_validator("steps_per_epoch", mode="before")
    @classmethod
    def _steps_from_data(cls, value: Any, info: ValidationInfo) -> Any:
        data, batch_size = info.data.get("data"), info.data.get("batch_size")
        if value is not None:
            return value
        if not isinstance(data, DataOptions) or batch_size is None:
            return 1  # a placeholder: data or batch_size has an error that is reported separately
        if task_of(data.facts) == "translation":
            if reading_of(info).partial:
                return 1
            allowed = f"integer >= 1, because a sample of {data.name} is a bucket of sentence pairs"
            raise checks_failed("steps_per_epoch", [wrong((), "null", allowed)])
        return max(1, data.facts["train_samples"] // batch_size)

    @property
    def facts(self) -> Mapping[str, Any]:
        return self.data.facts

    @property
    def task(self) -> str:
        return task_of(self.facts)

    @property
    def inputs_per_sample(self) -> float:
        """Size of a sample in largest inputs of the model: 1; for text, tokens of a bucket / longest sequence."""
        tokens = self.data.options.get("max_tokens")
        return 1 if tokens is None else tokens / self.facts["input_shape"][0]

    @property
    def local_batch_size(self) -> int:
        return self.batch_size // self.workers

    @property
    def samples_left(self) -> int:
        """Training samples that are left for the last step of an epoch."""
        return int(self.facts["train_samples"]) - (self.steps_per_epoch - 1) * self.batch_size

    @property
    def forward_batch_size(self) -> int:
        """Samples per forward pass, over which BatchNorm normalises."""
        return self.micro_batch_size or self.local_batch_size // self.gpus_per_worker

    @property
    def micro_batches(self) -> int:
        """Forward passes per worker and step, on all of its GPUs."""
        return self.local_batch_size // self.forward_batch_size

    @property
    def total_steps(self) -> int:
        return self.epochs * self.steps_per_epoch

    @property
    def period(self) -> Period:
        """The rule for the number of local steps per round, in steps."""
        return self.sync.in_steps(self.steps_per_epoch).rule

    @property
    def lr(self) -> Schedule:
        return self.schedule.of(self.shape)

    @property
    def shape(self) -> TrainingShape:
        return TrainingShape(self.workers, self.epochs, self.steps_per_epoch, self.total_steps, self.warmup_steps)

    @property
    def warmup_steps(self) -> int:
        return self.schedule.warmup_length(self.steps_per_epoch)


class RunSettings(Execution, ResultSettings):
    """All settings of a run, except its name and seed."""

    @property
    def kept_steps(self) -> tuple[int, ...]:
        return tuple(sorted({round(epoch * self.steps_per_epoch) for epoch in self.checkpoint.keep_epochs}))

    def checks(self) -> Iterator[Check]:
        yield from self._division_checks()
        if self.evaluation.sharpness_batches and self.precision in ("bf16", "fp16"):
            allowed = "null, or precision fp32 or tf32, which second derivatives need"
            yield wrong(("evaluation", "sharpness_batches"), f"with precision {self.precision}", allowed)
        if self.evaluation.also and self.workers == 1:
            yield wrong(("evaluation", "also"), f"{self.evaluation.also} with one worker", "null")
        if self.loss_scale and self.precision != "fp16":
            yield wrong("loss_scale", f"with precision {self.precision}", "null, or with precision fp16")
        if self.heterogeneity and self.workers == 1:
            yield wrong("heterogeneity", "with 1 worker", "null, or several workers")
        if not self.epochs and not (self.start_from or self.start_checkpoint):
            yield wrong("epochs", 0, "integer >= 1, or with start_from or start_checkpoint")
        elif not self.epochs and self.schedule.name != "constant":
            yield wrong(
                ("schedule", "name"), f"{self.schedule.name} with 0 epochs", "constant, since nothing is trained"
            )
        if self.start_from and self.start_checkpoint:
            yield wrong("start_checkpoint", f"beside start_from {self.start_from}", "one of the two")
        for other in ("start_from", "start_checkpoint", "random_numbers", "search"):
            if self.weights_seed is not None and getattr(self, other):
                yield wrong("weights_seed", f"{self.weights_seed} beside {other}", "null, or without it")
        yield from self._checkpoint_checks()
        yield from self._clock_checks()
        yield from self._last_batch_checks()
        if self.plateau and self.sync.rule.follows_lr:
            allowed = "null, because the period follows from a learning rate that is known before the training"
            yield wrong("plateau", "with the period rule power", allowed)
        for name in ("schedule", "optimizer", "sync", "model"):
            part: Part = getattr(self, name)
            yield from (((name, *key), message) for key, message in part.checks_in(self.shape))
        yield from self._component_checks()
        yield from self._task_checks()
        if self.search:
            yield from self._search_checks(self.search)

    def _last_batch_checks(self) -> Iterator[Check]:
        """Require that what is left for the last batch of an epoch divides evenly, and that the loop draws it here."""
        if self.last_batch is None:
            return
        left, in_memory = self.samples_left, isinstance(self.data.component.reader, MemoryReader)
        if not in_memory or self.sampling == "with_replacement" or self.heterogeneity or self.processes > self.workers:
            allowed = "null, or images in memory, without replacement and heterogeneity, at most one process per worker"
            yield wrong("last_batch", self.last_batch, allowed)
        elif not 0 < left < self.batch_size or left % (self.workers * self.micro_batches):
            allowed = (
                "null, or some samples left after the other steps, the same for every worker, GPU and forward pass"
            )
            yield wrong("last_batch", f"{self.last_batch} with {left} left", allowed)

    def _search_checks(self, search: RateSearch) -> Iterator[Check]:
        if search.workers[-1] != self.workers:
            yield wrong(("search", "workers"), f"{search.workers[-1]} at its end", f"workers = {self.workers}")
        if self.processes > 1:
            yield wrong("processes", f"{self.processes} with search", 1)
        if self.optimizer.name != "sgd" or self.optimizer.state_vectors or getattr(self.optimizer, "weight_decay", 0):
            yield wrong("optimizer", "another with search", "sgd without momentum and weight decay")
        if self.schedule.name != "constant" or self.warmup_steps:
            yield wrong("schedule", "another with search", "constant, whose lr is the start of the search")
        final = search.final
        if final and final.weight and not hasattr(self.sync, "weight"):
            yield wrong(("search", "final", "weight"), f"with sync {self.sync.name}", "null")
        if final and final.lr_by_delay and getattr(self.sync, "relayed", None) != "model":
            yield wrong(
                ("search", "final", "lr_by_delay"), f"with sync {self.sync.name}", "null, or relaysum of models"
            )
        for size in search.workers:
            shape = TrainingShape(size, self.epochs, self.steps_per_epoch, self.total_steps, self.warmup_steps)
            yield from ((("sync", *key), message) for key, message in self.sync.checks_in(shape))

    def _division_checks(self) -> Iterator[Check]:
        workers, gpus, processes = self.workers, self.gpus_per_worker, self.processes
        if workers % processes and (processes % workers or gpus % (processes // workers)):
            allowed = f"a divisor of workers = {workers}"
            allowed += f", or {workers} times a divisor of gpus_per_worker = {gpus}" if gpus > 1 else ""
            yield wrong("processes", processes, allowed)
        elif processes > workers and self.sync.needs.one_process_per_worker:
            found = f"{processes} with this sync {self.sync.name}, which has one process for all GPUs of a worker"
            yield wrong("processes", found, f"at most workers = {workers}")
        parts = ("workers", "gpus_per_worker") if gpus > 1 else ("workers",)
        if self.batch_size % (workers * gpus):
            yield wrong("batch_size", self.batch_size, f"a multiple of {' * '.join(parts)} = {workers * gpus}")
        elif self.micro_batch_size and self.local_batch_size // gpus % self.micro_batch_size:
            share = f"{' / '.join(('batch_size', *parts))} = {self.local_batch_size // gpus}"
            allowed = f"a divisor of a {'GPU' if gpus > 1 else 'worker'}'s batch, {share}"
            yield wrong("micro_batch_size", self.micro_batch_size, allowed)

    def _clock_checks(self) -> Iterator[Check]:
        if self.clock:
            yield from ((("clock", *key), message) for key, message in self.clock.checks_for(self.workers))
        if self.clock and not self.sync.is_timed:
            yield wrong("clock", f"one with this sync {self.sync.name}, whose simulated times are unknown", "null")
        if not self.clock and self.sync.needs.virtual_clock:
            yield wrong("clock", f"null with sync {self.sync.name}", "step_seconds or trace")
        if self.random_numbers and self.data.name != "gaussian_clusters":
            yield wrong("random_numbers", f"{self.random_numbers} with data {self.data.name}", "null")

    def _checkpoint_checks(self) -> Iterator[Check]:
        for index, epoch in enumerate(self.checkpoint.keep_epochs):
            if epoch > self.epochs:
                yield wrong(("checkpoint", "keep_epochs", index), f"{epoch:g}", f"at most epochs = {self.epochs}")
        if self.start_state and "@" not in (self.start_from or ""):
            found = f"{self.start_state} with start_from {show(self.start_from)}"
            yield wrong("start_state", found, "null, or start_from a checkpoint, ...@step<n>")

    def _task_checks(self) -> Iterator[Check]:
        task = self.task
        if self.model.task != task:
            yield wrong(("model", "name"), f"{self.model.name} for {self.model.task}", f"a model for {task}")
        if task == "translation" and self.forward_batch_size != 1:
            found = f"{show(self.micro_batch_size)} with {self.local_batch_size} buckets per worker"
            yield wrong("micro_batch_size", found, "1, one bucket of sentence pairs per forward pass")
        for keys, tasks in _TASKS_WITH.items():
            if reduce(getattr, keys, self) is not None and task not in tasks:
                yield keys, f"has no effect in {task}, allowed: null"

    def _component_checks(self) -> Iterator[Check]:
        yield from self._engine_checks()
        if self.model.has_batch_norm and not self.evaluation.bn_batches and self.workers > 1:
            allowed = f"integer >= 1, because the model {self.model.name} has BatchNorm"
            yield wrong(("evaluation", "bn_batches"), f"0 with {self.workers} workers", allowed)
        if self.model.has_batch_norm is False and self.evaluation.bn_batches:
            allowed = f"0, because {self.model.name} has no BatchNorm"
            yield wrong(("evaluation", "bn_batches"), self.evaluation.bn_batches, allowed)

    def _engine_checks(self) -> Iterator[Check]:
        engine, stage = self.engine.name, self.engine.zero_stage
        if stage and engine != "deepspeed":
            yield wrong(("engine", "zero_stage"), f"{stage} with engine {engine}", "0, or engine deepspeed")
        if engine == "stacked":
            yield from self._stacked_checks()
        if engine not in ("ddp", "deepspeed"):
            return
        if engine == "ddp" and not self.sync.needs.engine_may_average and self.processes == self.workers:
            allowed = "auto, serial, or an algorithm that averages gradients by the default all-reduce"
            allowed += ", or several processes for each worker" if self.gpus_per_worker > 1 else ""
            yield wrong(("engine", "name"), f"{engine} with sync {self.sync.name}", allowed)
        one_each = self.processes == self.workers if engine == "deepspeed" else self.processes >= self.workers
        if not one_each or (self.processes == 1 and engine == "ddp"):
            found = f"{engine} with {self.workers} workers on {self.processes} processes"
            several = "several processes with at most one worker each"
            allowed = "one process per worker" if engine == "deepspeed" else several
            yield wrong(("engine", "name"), found, f"auto, serial, or {allowed}")
        if engine == "deepspeed":
            yield from self._deepspeed_checks()

    def _stacked_checks(self) -> Iterator[Check]:
        allowed = "auto, serial"
        if self.model.stacked_form is None:
            found = f"stacked with model {self.model.name}" + (" with dropout" if self.model.form else "")
            yield wrong(("engine", "name"), found, allowed)
        if self.clock and self.sync.needs.separate_optimizer_steps:
            yield wrong(
                ("engine", "name"), f"stacked with a clock and sync {self.sync.name}, whose workers step apart", allowed
            )
        if self.precision == "fp16":
            yield wrong(("engine", "name"), "stacked with precision fp16", f"{allowed}, or precision bf16")
        if self.processes > self.workers:
            found = f"stacked with {self.processes} processes for {self.workers} workers"
            yield wrong(("engine", "name"), found, f"{allowed}, or one process per worker")

    def _deepspeed_checks(self) -> Iterator[Check]:
        if self.sync.name != "allreduce" or not self.sync.needs.engine_may_average:
            found = f"deepspeed with sync {self.sync.name}"
            yield wrong(("engine", "name"), found, "with allreduce of gradients by the default all-reduce")
        if self.compile:
            yield ("compile",), f"found {self.compile}, allowed with engine deepspeed: null"
        if self.optimizer.decay_of_matrices:
            yield ("optimizer", "decay"), f"found {self.optimizer.decaying}, allowed with engine deepspeed: all"

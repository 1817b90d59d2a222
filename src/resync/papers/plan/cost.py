"""Cost of runs without training: rounds, volume, bytes and samples exactly; operations and disk approximately."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal

from resync.base.text_tables import aligned
from resync.runs.exchanges import exchanges, number_of_rounds, whole
from resync.runs.run import Run

FLOAT32_BYTES = 4
"""Parameters are stored and exchanged in float32."""


@dataclass(frozen=True)
class Volume:
    """The part of a run's cost that its schedule and period rule decide, independent of the model.

    Attributes:
        run: id of the run.
        steps: local steps of each worker.
        rounds: number of rounds; equal to `steps` for an algorithm that communicates in every step.
        vectors: number of parameter vectors that a worker sends, averaged over the workers; exact.
        samples: training samples over all workers, with repetitions.
        workers: number of workers.
    """

    run: str
    steps: int
    rounds: int
    vectors: int | Fraction
    samples: int
    workers: int

    @property
    def volume_percent(self) -> float:
        """Communication volume: vectors sent, as a percentage of one vector per step; 0 without steps."""
        return float(100 * self.vectors / self.steps) if self.steps else 0.0


@dataclass(frozen=True)
class Cost(Volume):
    """A volume with the size of its vectors.

    Attributes:
        parameters: number of elements of a parameter vector.
        flops_per_sample: floating-point operations of a forward and a backward pass; None if unknown.
        gpu_hours: GPUs of the run times its time limit, which a cluster has to grant: an upper bound.
        disk_bytes: size of the kept checkpoints and the final model: parameters and optimizer state of every worker,
            without additional state of an algorithm, and without logs.
        expected_hours: of the run, which follow from a rate; None if none is known.
        expected_gpu_hours: these hours times its GPUs.
        rate_from: where that rate comes from: a rehearsal, perhaps on noise, published times, or the repository's own
            runs; empty if unknown.
    """

    parameters: int
    flops_per_sample: int | None
    gpu_hours: float
    disk_bytes: int
    expected_hours: float | None = None
    expected_gpu_hours: float | None = None
    rate_from: str = ""

    @property
    def bytes_per_worker(self) -> int:
        """Bytes of parameters that a worker sends, without evaluation and BatchNorm statistics."""
        return int(self.vectors * self.parameters * FLOAT32_BYTES)

    @property
    def bytes_of_all(self) -> int:
        return self.bytes_per_worker * self.workers

    @property
    def flops(self) -> int | None:
        """Floating-point operations of the training, without evaluation."""
        return None if self.flops_per_sample is None else self.flops_per_sample * self.samples

    def as_dict(self) -> dict[str, Any]:
        derived = ("volume_percent", "bytes_per_worker", "bytes_of_all", "flops")
        vectors = self.vectors if isinstance(self.vectors, int) else float(self.vectors)
        return asdict(self) | {"vectors": vectors} | {name: getattr(self, name) for name in derived}


@dataclass(frozen=True)
class Total:
    """The total cost of the runs of an experiment or a paper; attributes as in `Cost`.

    What is expected is that of the runs with a known rate; `without_rate` is the number of the others.
    """

    name: str
    runs: int
    samples: int
    bytes_of_all: int
    flops: int | None
    gpu_hours: float
    disk_bytes: int
    expected_hours: float | None
    expected_gpu_hours: float | None
    rate_from: str
    without_rate: int


def volume(run: Run) -> Volume:
    """Return the communication volume of `run`, exactly as in training."""
    kinds = exchanges(run)
    return Volume(
        run=run.id,
        steps=run.total_steps,
        rounds=number_of_rounds(run),
        vectors=whole(sum((exchange.sent for exchange in kinds), Fraction())),
        samples=run.total_steps * run.batch_size,
        workers=run.workers,
    )


def cost(run: Run, num_parameters: int, flops_per_sample: int | None = None) -> Cost:
    """Return the cost of `run`, whose model has `num_parameters` parameters."""
    resources = run.resources
    return Cost(
        **asdict(volume(run)),
        parameters=num_parameters,
        flops_per_sample=flops_per_sample,
        gpu_hours=resources.nodes * resources.gpus_per_node * resources.minutes / 60,
        disk_bytes=_vectors_on_disk(run) * num_parameters * FLOAT32_BYTES,
    )


def _vectors_on_disk(run: Run) -> int:
    """The parameter vectors in a run's checkpoints and models: one model at the end and in each kept checkpoint."""
    kept = len(run.kept_steps)
    return (run.checkpoint.keep + kept) * run.workers * (1 + run.optimizer.state_vectors) + 1 + kept


def totals(costs: Iterable[Cost], of: Literal["experiment", "paper"]) -> list[Total]:
    """Return the total cost of the runs of every experiment or paper, in the order of the runs."""
    groups: dict[str, list[Cost]] = {}
    for item in costs:
        paper, experiment, *_ = item.run.split("/")
        groups.setdefault(paper if of == "paper" else f"{paper}/{experiment}", []).append(item)
    return [total(name, group) for name, group in groups.items()]


def total(name: str, costs: Sequence[Cost]) -> Total:
    """Return the total cost of some runs."""
    known = [item.flops for item in costs if item.flops is not None]
    hours, gpu_hours = (
        [value for item in costs if (value := getattr(item, name)) is not None]
        for name in ("expected_hours", "expected_gpu_hours")
    )
    without_rate = len(costs) - len(hours)
    sources = sorted({item.rate_from for item in costs} - {""})
    return Total(
        name,
        runs=len(costs),
        samples=sum(item.samples for item in costs),
        bytes_of_all=sum(item.bytes_of_all for item in costs),
        flops=sum(known) if len(known) == len(costs) else None,
        gpu_hours=sum(item.gpu_hours for item in costs),
        disk_bytes=sum(item.disk_bytes for item in costs),
        expected_hours=sum(hours) if hours else None,
        expected_gpu_hours=sum(gpu_hours) if gpu_hours else None,
        rate_from=", ".join(sources + ([f"{without_rate} unknown"] if sources and without_rate else [])),
        without_rate=without_rate,
    )


def table(costs: Sequence[Cost]) -> str:
    """Return an aligned text table: a line of headings, then one line per run."""
    exact = ("run", "steps", "rounds", "volume %", "sent/worker", "samples")
    lines: list[tuple[str, ...]] = [(*exact, *_HEADINGS)]
    for item in costs:
        volume, sent = f"{item.volume_percent:.3f}", in_units(item.bytes_per_worker, "B")
        cells = item.run, f"{item.steps:,}", f"{item.rounds:,}", volume, sent, f"{item.samples:,}"
        lines.append((*cells, *_sizes(item)))
    return "\n".join(aligned(lines))


def table_of_totals(summed: Sequence[Total], of: str) -> str:
    """Return an aligned text table: a line of headings, then one line per experiment or paper."""
    lines: list[tuple[str, ...]] = [(of, "runs", "samples", *_HEADINGS)]
    lines += [(item.name, f"{item.runs:,}", f"{item.samples:,}", *_sizes(item)) for item in summed]
    return "\n".join(aligned(lines))


def in_a_sentence(summed: Total) -> str:
    """How long some runs take, by what this is known, and what they leave on the disk."""
    disk = f"they keep {in_units(summed.disk_bytes, 'B')} on disk"
    if summed.expected_hours is None:
        return f"hours unknown, `resync run rehearse` measures them; {disk}"
    gpus = f", {_plain(summed.expected_gpu_hours)} GPU-hours" if summed.expected_gpu_hours else ""
    return f"about {_plain(summed.expected_hours)} h of runs one after another{gpus} (from {summed.rate_from}); {disk}"


_HEADINGS = ("sent by all", "computing", "h expected", "GPU-h expected", "rate from", "GPU-h limit", "disk")


def _sizes(item: Cost | Total) -> tuple[str, ...]:
    flops = "-" if item.flops is None else in_units(item.flops, "FLOP")
    expected = ["-" if hours is None else _plain(hours) for hours in (item.expected_hours, item.expected_gpu_hours)]
    limit, disk = _plain(item.gpu_hours), in_units(item.disk_bytes, "B")
    return in_units(item.bytes_of_all, "B"), flops, *expected, item.rate_from or "-", limit, disk


def _plain(hours: float) -> str:
    return "< 0.01" if 0 < hours < 0.01 else f"{hours:,.0f}" if hours >= 1000 else f"{hours:.4g}"


def in_units(count: int, unit: str) -> str:
    """Return a count with a decimal prefix, 1 kB = 1000 B."""
    amount, prefixes = float(count), iter(("", "k", "M", "G", "T", "P", "E", "Z"))
    prefix = next(prefixes)
    while amount >= 1000 and prefix != "Z":
        amount, prefix = amount / 1000, next(prefixes)
    return f"{amount:.4g} {prefix}{unit}"

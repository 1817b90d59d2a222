"""Cost of a run: rounds, communication volume, bytes and samples, exactly as training will have them."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from math import ceil

from resync.config import Run
from resync.config.components import Traffic
from resync.periods import rounds
from resync.plan.translate import lr_of, period_of, phases_of

FLOAT32_BYTES = 4
"""Parameters are kept and exchanged in float32."""


@dataclass(frozen=True)
class Volume:
    """What the schedule and the period rule of a run decide, whatever its model.

    Attributes:
        run: id of the run.
        steps: local steps of each worker.
        rounds: synchronisations; equal to `steps` for an algorithm that communicates in every step.
        vectors: parameter vectors that a worker sends.
        samples: training samples over all workers, repeats counted.
        workers: number of workers.
    """

    run: str
    steps: int
    rounds: int
    vectors: int
    samples: int
    workers: int

    @property
    def volume_percent(self) -> float:
        """Communication volume: vectors sent, in percent of one in every step."""
        return 100 * self.vectors / self.steps


@dataclass(frozen=True)
class Cost(Volume):
    """A volume with the size of its vectors.

    Attributes:
        parameters: numbers in a parameter vector.
    """

    parameters: int

    @property
    def bytes_per_worker(self) -> int:
        """Bytes of parameters that a worker sends, without evaluation and BatchNorm statistics."""
        return self.vectors * self.parameters * FLOAT32_BYTES

    def as_dict(self) -> dict[str, str | int | float]:
        """Everything, for JSON."""
        return asdict(self) | {"volume_percent": self.volume_percent, "bytes_per_worker": self.bytes_per_worker}


def volume(run: Run) -> Volume:
    """Return the communication volume of `run`, exactly as training will have it."""
    traffic = _traffic(run)
    if traffic.every == "round":
        lengths = rounds(period_of(run), lr_of(run), run.total_steps, run.warmup_steps)
        phases = [(len(lengths), 1)]
    else:
        phases = list(_phases(run, traffic))
    vectors = sum(number * sent for number, sent in phases) + _vectors_beside(run, phases[0][0])
    return Volume(
        run=run.id,
        steps=run.total_steps,
        rounds=sum(number for number, _ in phases),
        vectors=vectors,
        samples=run.total_steps * run.batch_size,
        workers=run.workers,
    )


def cost(run: Run, num_parameters: int) -> Cost:
    """Return the cost of `run`, whose model has `num_parameters` parameters."""
    return Cost(**asdict(volume(run)), parameters=num_parameters)


def _phases(run: Run, traffic: Traffic) -> Iterator[tuple[int, int]]:
    """Number of mixes of each phase of an algorithm that mixes all the time, and vectors that a worker sends in one."""
    declared = traffic.vectors if isinstance(traffic.vectors, int) else run.sync.options[traffic.vectors]
    phases = [(0, declared)] if isinstance(declared, int) else phases_of(run, declared)
    delay = run.sync.options[traffic.delay] if traffic.delay else 0
    ends = [*(first for first, _ in phases[1:]), run.total_steps]
    for (first, peers), end in zip(phases, ends, strict=True):
        if peers == 0:  # an average over all workers sends one vector, as an all-reduce does
            yield end - first, 1
        elif run.sync.options.get("topology") == "complete":
            yield ceil((end - first) / (1 + delay)), run.workers - 1
        else:
            yield ceil((end - first) / (1 + delay)), peers


def _vectors_beside(run: Run, num_rounds: int) -> int:
    """Vectors that a worker sends beside its parameters: averaged optimizer state, and an outer optimizer's base."""
    options = run.sync.options
    fields = len(options.get("average_state", ()))
    if options.get("buffers") == "average":
        fields = 2 if run.optimizer.name == "adamw" else int(run.optimizer.options["momentum"] > 0)
    without_average = options.get("average") is False
    base = run.total_steps if options.get("base", "none") != "none" else 0
    return (fields - without_average) * num_rounds + base


def table(costs: Iterable[Cost]) -> str:
    """Return an aligned text, a line for each run below a line of headings."""
    lines = [("run", "steps", "rounds", "volume %", "sent/worker", "samples")]
    for item in costs:
        volume, sent = f"{item.volume_percent:.3f}", _in_bytes(item.bytes_per_worker)
        lines.append((item.run, f"{item.steps:,}", f"{item.rounds:,}", volume, sent, f"{item.samples:,}"))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(_aligned(line, widths) for line in lines)


def _traffic(run: Run) -> Traffic:
    traffic = run.sync.component.traffic
    if traffic is None:
        raise ValueError(f"{run.id}: sync {run.sync.name} declares no traffic, so its cost is unknown")
    return traffic


def _in_bytes(count: int) -> str:
    """Return a number of bytes with a decimal unit, 1 kB = 1000 B."""
    amount, units = float(count), iter(("B", "kB", "MB", "GB", "TB", "PB"))
    unit = next(units)
    while amount >= 1000 and unit != "PB":
        amount, unit = amount / 1000, next(units)
    return f"{amount:.4g} {unit}"


def _aligned(line: tuple[str, ...], widths: list[int]) -> str:
    name, *numbers = line
    right = [text.rjust(width) for text, width in zip(numbers, widths[1:], strict=True)]
    return "  ".join([name.ljust(widths[0]), *right])

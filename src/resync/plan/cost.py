"""Cost of a run: rounds, communication volume, bytes and samples, exactly as training will have them."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from resync.config import Run
from resync.config.components import Traffic
from resync.periods import rounds
from resync.plan.translate import lr_of, period_of

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
    steps, traffic = run.total_steps, _traffic(run)
    num_rounds = steps if traffic.every == "step" else _num_rounds(run)
    per_round = traffic.vectors if isinstance(traffic.vectors, int) else run.sync.options[traffic.vectors]
    return Volume(
        run=run.id,
        steps=steps,
        rounds=num_rounds,
        vectors=num_rounds * per_round,
        samples=steps * run.batch_size,
        workers=run.workers,
    )


def cost(run: Run, num_parameters: int) -> Cost:
    """Return the cost of `run`, whose model has `num_parameters` parameters."""
    return Cost(**asdict(volume(run)), parameters=num_parameters)


def _num_rounds(run: Run) -> int:
    return len(rounds(period_of(run), lr_of(run), run.total_steps, run.warmup_steps))


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

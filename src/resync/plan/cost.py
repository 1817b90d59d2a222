"""Cost of a run: rounds, communication volume, bytes and samples, exactly as training will have them."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from resync.config import Run
from resync.plan.exchanges import exchanges

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
    found = exchanges(run)
    return Volume(
        run=run.id,
        steps=run.total_steps,
        rounds=sum(exchange.count for exchange in found if not exchange.within_round),
        vectors=sum(exchange.count * exchange.vectors for exchange in found),
        samples=run.total_steps * run.batch_size,
        workers=run.workers,
    )


def cost(run: Run, num_parameters: int) -> Cost:
    """Return the cost of `run`, whose model has `num_parameters` parameters."""
    return Cost(**asdict(volume(run)), parameters=num_parameters)


def table(costs: Iterable[Cost]) -> str:
    """Return an aligned text, a line for each run below a line of headings."""
    lines = [("run", "steps", "rounds", "volume %", "sent/worker", "samples")]
    for item in costs:
        volume, sent = f"{item.volume_percent:.3f}", _in_bytes(item.bytes_per_worker)
        lines.append((item.run, f"{item.steps:,}", f"{item.rounds:,}", volume, sent, f"{item.samples:,}"))
    return "\n".join(aligned(lines))


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of cells as texts of one width: the first column to the left, all others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join([name.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))])
        for name, *cells in lines
    ]


def _in_bytes(count: int) -> str:
    """Return a number of bytes with a decimal unit, 1 kB = 1000 B."""
    amount, units = float(count), iter(("B", "kB", "MB", "GB", "TB", "PB"))
    unit = next(units)
    while amount >= 1000 and unit != "PB":
        amount, unit = amount / 1000, next(units)
    return f"{amount:.4g} {unit}"

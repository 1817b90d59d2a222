"""How the time for a fixed number of samples shrinks as workers are added, and where that ends."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from resync.base.text_tables import aligned
from resync.papers.paper.published import PublishedValue
from resync.papers.plan.cost import FLOAT32_BYTES, in_units
from resync.papers.plan.forecast import Forecast, calibrations, forecast, limits
from resync.papers.plan.network import Network
from resync.papers.plan.rehearsed import Rates
from resync.papers.plan.wallclock import Machine, wall_clock
from resync.runs.run import Run

MOST_WORKERS = 1 << 17
"""Up to where the number of workers is doubled to find a limit."""


@dataclass(frozen=True)
class Scaling:
    """A series on growing numbers of workers, of which each has as large a batch as in the run.

    Attributes:
        series: experiment and series.
        samples: number of training samples that the times are for, over all workers.
        workers: numbers of workers.
        seconds: the time with each of them.
        half: the last of 4, 8, 16, ... workers, up to `MOST_WORKERS`, that compute for at least half of the time, so
            that they are at least half as fast as if none of them waited or communicated; 0 if 4 do not.
        whole_set: the least workers whose steps take at least as many samples as the training set has.
        simulated_bytes: memory of each worker in a process that simulates them all: parameters, gradients and the state
            of the optimizer. Simulating takes the operations of the samples, whatever the number of workers.
    """

    series: str
    samples: int
    workers: tuple[int, ...]
    seconds: tuple[float, ...]
    half: int
    whole_set: int
    simulated_bytes: int


def scalings(
    runs: Sequence[tuple[Run, int]],
    published: Sequence[PublishedValue],
    network_of: Callable[[Run], Network],
    workers: Sequence[int],
    *,
    compute: float | None = None,
    delay: float = 0.0,
    rates: Mapping[str, Rates] = MappingProxyType({}),
) -> tuple[list[Scaling], list[Forecast], list[str]]:
    """The scaling of every method among `runs`, for the samples of the first of them.

    Runs of an experiment that differ in their number of workers are one method, and the first one stands for it.
    Returns the scalings, the forecasts for the last number of workers, and one line per group of runs without a
    calibration. Arguments and errors are those of `resync.papers.plan.forecast.forecast`.
    """
    methods = list({_method(run): (run, count) for run, count in reversed(runs)}.values())[::-1]
    # Calibrated on all runs: those that have a published time may be the others of a method.
    columns = [
        forecast(runs, published, network_of, compute=compute, delay=delay, workers=number, rates=rates)[0]
        for number in workers
    ]
    known, unknown = forecast(runs, published, network_of, compute=compute, delay=delay, rates=rates)
    machines = {item.clock.run: item.machine for item in known}
    scaled, shown = [], []
    samples = next(run.total_steps * run.batch_size for run, _ in methods if run.id in machines)
    for run, count in methods:
        if run.id not in machines:
            continue
        own = [item for column in columns for item in column if item.clock.run == run.id]
        share = samples / (run.total_steps * run.batch_size)
        shown.append(own[-1])
        scaled.append(
            Scaling(
                f"{run.experiment}/{run.series}",
                samples,
                tuple(workers),
                tuple(share * item.clock.total for item in own),
                _half(run, machines[run.id], count),
                -(-int(run.facts["train_samples"]) // run.local_batch_size),
                (2 + run.optimizer.state_vectors) * count * FLOAT32_BYTES,
            )
        )
    return scaled, shown, unknown


def _method(run: Run) -> tuple[str, str, int]:
    return run.experiment, run.sync.model_dump_json(), run.local_batch_size


def _half(run: Run, machine: Machine, num_parameters: int) -> int:
    half, workers = 0, 4
    while workers <= MOST_WORKERS:
        clock = wall_clock(run, machine, num_parameters, workers)
        if clock.compute / clock.total < 0.5:
            break
        half, workers = workers, 2 * workers
    return half


def table(scaled: Sequence[Scaling], forecasts: Sequence[Forecast]) -> str:
    """Return an aligned text table: times by the number of workers and the limit of each series; then notes."""
    first, last = scaled[0], scaled[0].workers[-1]
    lines = [("workers", *(f"{number:,}" for number in first.workers), "half at")]
    lines += [(method.series, *map(_time, method.seconds), _limit(method.half)) for method in scaled]
    return "\n".join(
        [
            *aligned(lines),
            f"times for {first.samples:,} samples; half at: from there on, workers compute for less than half of it",
            *_shared(
                "the training set is one step of", {method.series: f"{method.whole_set:,} workers" for method in scaled}
            ),
            *_shared(
                f"one process that simulates {last:,} workers holds",
                {method.series: in_units(last * method.simulated_bytes, "B") for method in scaled},
            ),
            *calibrations(forecasts),
            *(line for line in limits(forecasts) if not line.startswith("batch")),  # said by whole_set
        ]
    )


def _shared(what: str, by_series: dict[str, str]) -> Iterator[str]:
    """One line for each value, with the series that have it if there are several values."""
    for value in dict.fromkeys(by_series.values()):
        series = [name for name, own in by_series.items() if own == value]
        yield f"{what} {value}" + (f" [{', '.join(series)}]" if len(series) < len(by_series) else "")


def _limit(half: int) -> str:
    return "4" if half == 0 else f"> {half:,}" if half == MOST_WORKERS else f"{2 * half:,}"


def _time(seconds: float) -> str:
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"

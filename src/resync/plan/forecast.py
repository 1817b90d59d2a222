"""The time of runs on a network, with a given compute time or calibrated on the paper's own published hours."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from resync.errors import UserError
from resync.metrics.registry import SECONDS_PER_HOUR
from resync.paper.published import CERTAINTY, PublishedValue, most_certain
from resync.plan.calibrate import Calibration, Timing, calibrate
from resync.plan.exchanges import exchanges
from resync.plan.network import Network
from resync.plan.wallclock import Machine, WallClock, wall_clock
from resync.run import Run
from resync.text_tables import aligned

_TIMES = ("compute h", "waiting h", "comm. h", "hidden h", "total h")
_HEADINGS = ("series", "workers", "s/step", *_TIMES, "published", "error")


@dataclass(frozen=True)
class Fit:
    """The calibration on two runs, for a group of runs with the same computation per step.

    Attributes:
        compute: seconds per step of one GPU, without delays and communication.
        slowdown: measured time of an all-reduce, as a multiple of that from the network's formula.
        delay: mean of the exponential delay of a step in seconds, as given.
        runs: ids of the two runs.
        statuses: status of their published hours.
    """

    compute: float
    slowdown: float
    delay: float
    runs: tuple[str, ...]
    statuses: tuple[str, ...]

    def machine(self, network: Network) -> Machine:
        """A machine that computes as fast as in the two runs, on a network with the same all-reduce implementation."""
        return Machine(replace(network, slowdown=self.slowdown), self.compute, self.delay)


@dataclass(frozen=True)
class Forecast:
    """The wall clock of a run beside its published hours.

    Attributes:
        clock: the model's seconds.
        published: the most certain published hours of the run, if there are any for this number of workers.
        basis: `given` (compute time), `fitted` to this run's published hours, or `predicted` from two other runs.
        fit: the calibration; None if the compute time was given.
    """

    clock: WallClock
    published: PublishedValue | None
    basis: str
    fit: Fit | None

    @property
    def hours(self) -> float:
        return self.clock.total / SECONDS_PER_HOUR

    @property
    def error(self) -> float | None:
        """(model - published) / published."""
        known = self.published.value if self.published else None
        return None if known is None else self.hours / known - 1

    def as_dict(self) -> dict[str, Any]:
        clock = self.clock
        return {
            "run": clock.run,
            "workers": clock.workers,
            "steps": clock.steps,
            "seconds_per_step": clock.per_step,
            "compute_seconds": clock.compute,
            "waiting_seconds": clock.waiting,
            "communication_seconds": clock.communication,
            "hidden_seconds": clock.hidden,
            "hours": self.hours,
            "published_hours": self.published.value if self.published else None,
            "published_status": self.published.status if self.published else None,
            "error": self.error,
            "basis": self.basis,
            "calibrated_on": list(self.fit.runs) if self.fit else None,
            "limits": list(clock.limits),
        }


def forecast(
    runs: Sequence[tuple[Run, int]],
    published: Sequence[PublishedValue],
    network_of: Callable[[Run], Network],
    *,
    compute: float | None = None,
    delay: float = 0.0,
    workers: int | None = None,
) -> tuple[list[Forecast], list[str]]:
    """Return the wall clock of every run for which it can be computed, in order, and one line per group without one.

    Without `compute`, runs with the same model, data and samples per step and worker are calibrated together, on two
    of their published hours: see `fit`.

    Args:
        runs: each with the number of parameters of its model.
        published: the published values of their paper.
        network_of: the network of a run.
        compute: seconds per local step without delays.
        delay: mean of the exponential delay of every step, in seconds.
        workers: number of workers to extrapolate to, see `wall_clock`.

    Raises ValueError if no compute time is given and no group can be calibrated.
    """
    groups: dict[tuple[str, ...], list[tuple[Run, int]]] = {}
    for run, count in runs:
        groups.setdefault(_same_step(run), []).append((run, count))
    fits: dict[tuple[str, ...], Fit] = {}
    unknown: dict[tuple[str, ...], str] = {}
    for key, group in groups.items() if compute is None else ():
        try:
            fits[key] = fit(group, published, network_of, delay)
        except ValueError as error:
            unknown[key] = str(error)
    if unknown and not fits:
        raise UserError("\n".join(unknown.values()))
    forecasts = []
    for run, count in runs:
        if _same_step(run) in unknown:
            continue
        found = fits.get(_same_step(run))
        machine = Machine(network_of(run), compute or 0.0, delay) if found is None else found.machine(network_of(run))
        same = workers in (None, run.workers)
        basis = "given" if found is None else "fitted" if same and run.id in found.runs else "predicted"
        known = published_hours(run, published) if same else None
        forecasts.append(Forecast(wall_clock(run, machine, count, workers), known, basis, found))
    return forecasts, list(unknown.values())


def fit(
    runs: Sequence[tuple[Run, int]],
    published: Sequence[PublishedValue],
    network_of: Callable[[Run], Network],
    delay: float = 0.0,
) -> Fit:
    """Calibrate on two published times of runs of one experiment that only average over all workers.

    The times are hours of the training, or seconds per step where no two hours are known. Of several experiments, that
    with the most certain pair is used, then that with the fewest workers: the model extrapolates upwards. The arguments
    are those of `forecast`.

    Raises ValueError if there is no such pair.
    """
    found: list[Calibration] = []
    for metric, seconds in (("training_hours", SECONDS_PER_HOUR), ("seconds_per_step", 1)):
        timings: dict[str, list[Timing]] = {}
        for run, count in sorted(runs, key=lambda pair: pair[0].workers):
            value = _find_published(run, published, metric)
            if value is None or value.value is None or any(exchange.to == "peers" for exchange in exchanges(run)):
                continue
            bare = wall_clock(run, Machine(network_of(run), 0.0, delay), count)
            steps = 1 if metric == "seconds_per_step" else bare.steps
            time = value.value * seconds / steps - (bare.compute + bare.waiting) / bare.steps
            status = certainty(run, value, published)
            timing = Timing(run.id, bare.communication / bare.steps, time, CERTAINTY.index(status))
            timings.setdefault(run.experiment, []).append(timing)
        found += [calibrate(known) for known in timings.values() if len({timing.load for timing in known}) > 1]
        if found:
            break
    else:
        names = ", ".join(sorted({f"{run.paper}/{run.experiment}" for run, _ in runs}))
        raise UserError(f"{names}: no two published hours of averages over all workers to calibrate on, give --compute")
    best = min(found, key=lambda calibration: calibration.certainty)
    pair = best.more, best.less
    statuses = tuple(CERTAINTY[timing.certainty] for timing in pair)
    return Fit(best.compute, best.cost, delay, tuple(timing.name for timing in pair), statuses)


def published_hours(run: Run, published: Iterable[PublishedValue]) -> PublishedValue | None:
    """The most certain published hours of a run at its scale."""
    return _find_published(run, published, "training_hours")


def _find_published(run: Run, published: Iterable[PublishedValue], metric: str) -> PublishedValue | None:
    known = [value for value in published if value.scale == run.scale and value.value is not None]
    return most_certain(known, run.experiment, run.series, metric)


def certainty(run: Run, hours: PublishedValue, published: Iterable[PublishedValue]) -> str:
    """How certain it is that the run as declared took these hours: their status, or that of its volume if it is worse.

    A derived volume follows from verified settings, so it does not make the hours less certain.
    """
    volume = most_certain(published, run.experiment, run.series, "volume_percent")
    doubted = volume is not None and CERTAINTY.index(volume.status) > CERTAINTY.index("derived")
    return max(hours.status, volume.status, key=CERTAINTY.index) if volume and doubted else hours.status


def table(forecasts: Sequence[Forecast]) -> str:
    """Return an aligned text table: one line per run, then the calibrations, then the limits of the model."""
    lines: list[tuple[str, ...]] = [_HEADINGS]
    for item in forecasts:
        clock = item.clock
        parts = (clock.compute, clock.waiting, clock.communication, clock.hidden, clock.total)
        lines.append((
            _series(clock.run), f"{clock.workers:,}", f"{clock.per_step:.4g}",
            *(f"{seconds / SECONDS_PER_HOUR:.3g}" for seconds in parts),
            f"{item.published.value:g} {item.published.status}" if item.published else "-",
            item.basis if item.error is None or item.basis == "fitted" else f"{100 * item.error:+.1f} %",
        ))  # fmt: skip
    return "\n".join([*aligned(lines), *calibrations(forecasts), *limits(forecasts)])


def calibrations(forecasts: Sequence[Forecast]) -> Iterator[str]:
    """One line per calibration."""
    for found in dict.fromkeys(item.fit for item in forecasts if item.fit):
        runs = [f"{_series(run)} ({status})" for run, status in zip(found.runs, found.statuses, strict=True)]
        yield (
            f"calibrated on {' and '.join(runs)}: a step computes {found.compute:.4g} s, an all-reduce takes "
            f"{found.slowdown:.3g} times as long as the network's formula says"
        )


def limits(forecasts: Sequence[Forecast]) -> Iterator[str]:
    """Every limit of the model once, with the series to which it applies."""
    met: dict[str, list[str]] = {}
    for item in forecasts:
        for limit in item.clock.limits:
            met.setdefault(limit, []).append(_series(item.clock.run))
    return (f"{limit} [{', '.join(series)}]" for limit, series in met.items())


def _series(run: str) -> str:
    """The id of a run without its paper and seed."""
    return "/".join(run.split("/")[1:3])


def _same_step(run: Run) -> tuple[str, ...]:
    """A key that is equal for runs with the same computation per local step."""
    return run.paper, run.data.name, run.model.model_dump_json(), str(run.local_batch_size), str(run.gpus_per_worker)

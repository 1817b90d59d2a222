"""The time of runs on a network: with a given or rehearsed compute time, or calibrated on the paper's own hours."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from resync.base.errors import UserError
from resync.base.text_tables import aligned
from resync.papers.paper.published import CERTAINTY, PublishedValue, most_certain
from resync.papers.plan.calibrate import Timed, calibrate
from resync.papers.plan.cost import FLOAT32_BYTES, Cost
from resync.papers.plan.network import LINKS, Link, Network
from resync.papers.plan.rehearsed import Computing, Rates, computing, shape_id
from resync.papers.plan.wallclock import Machine, RunTime, wall_clock
from resync.runs.exchanges import exchanges
from resync.runs.metrics.registry import SECONDS_PER_HOUR
from resync.runs.run import Run

_TIMES = ("compute h", "waiting h", "comm. h", "hidden h", "total h")
_HEADINGS = ("series", "workers", "s/step", *_TIMES, "published", "error")


@dataclass(frozen=True)
class Fit:
    """The calibration on two runs, for a group of runs with the same computation per step.

    Attributes:
        compute: seconds per step of one GPU, without delays and communication.
        slowdown: measured time of an all-reduce, as a multiple of that from the formula of the network.
        delay: mean of the exponential delay of a step in seconds, as given.
        runs: ids of the two runs.
        statuses: status of their published hours.
        network: name of the link on which these were published.
    """

    compute: float
    slowdown: float
    delay: float
    runs: tuple[str, ...]
    statuses: tuple[str, ...]
    network: str

    def machine(self, network: Network) -> Machine:
        """A machine that computes as fast as in the two runs.

        Its all-reduces are as slow as theirs on the network on which their times were published; of another network,
        these say nothing.
        """
        slowdown = self.slowdown if network.link.name == self.network else 1.0
        return Machine(replace(network, slowdown=slowdown), self.compute, self.delay)


@dataclass(frozen=True)
class Forecast:
    """The wall clock of a run beside its published hours.

    Attributes:
        clock: the model's seconds.
        network: name of the link between nodes.
        published: the most certain published time of the run, if there is any for this number of workers and network.
        basis: `given` (compute time), `rehearsed`, `fitted` to this run's published time, or `predicted` from two other
            runs.
        machine: what computes and sends.
        fit: the calibration, if there is one.
        rehearsal: the rehearsed compute time, if there is one.
    """

    clock: RunTime
    network: str
    published: PublishedValue | None
    basis: str
    machine: Machine
    fit: Fit | None = None
    rehearsal: Computing | None = None

    @property
    def hours(self) -> float:
        return self.clock.total / SECONDS_PER_HOUR

    @property
    def beside(self) -> float:
        """The model's time in the unit of the published one: hours of the training, or seconds per step."""
        steps = self.published is not None and self.published.metric == "seconds_per_step"
        return self.clock.per_step if steps else self.hours

    @property
    def error(self) -> float | None:
        """(model - published) / published."""
        published = self.published and seconds_per_step(self.published, self.clock.steps)
        return self.clock.per_step / published - 1 if published else None

    def as_dict(self) -> dict[str, Any]:
        clock = self.clock
        return {
            "run": clock.run,
            "workers": clock.workers,
            "network": self.network,
            "steps": clock.steps,
            "seconds_per_step": clock.per_step,
            "compute_seconds": clock.compute,
            "waiting_seconds": clock.waiting,
            "communication_seconds": clock.communication,
            "hidden_seconds": clock.hidden,
            "hours": self.hours,
            "published": self.published.value if self.published else None,
            "published_unit": self.published.unit if self.published else None,
            "published_status": self.published.status if self.published else None,
            "error": self.error,
            "basis": self.basis,
            "calibrated_on": list(self.fit.runs) if self.fit else None,
            "calibrated_network": self.fit.network if self.fit else None,
            "limits": list(clock.limits),
        }


def nodes_of(run: Run, link: Link, inside: Link, all_reduce: str = "ring") -> Network:
    """The nodes of a run's `resources`, with a link between them and another one inside."""
    nodes = run.resources.nodes
    inside = inside if nodes <= run.workers else link  # a worker may be several nodes
    return Network(link, inside, max(1, run.workers // nodes), all_reduce)


def forecast(
    runs: Sequence[tuple[Run, int]],
    published: Sequence[PublishedValue],
    network_of: Callable[[Run], Network],
    *,
    compute: float | None = None,
    delay: float = 0.0,
    backward: float = 0.0,
    workers: int | None = None,
    rates: Mapping[str, Rates] = MappingProxyType({}),
) -> tuple[list[Forecast], list[str]]:
    """Return the wall clock of every run for which it can be computed, in order, and one line per group without one.

    Without `compute`, runs with the same model, data and samples per step and worker share the compute time of a
    rehearsal or, without one, are calibrated together, on two of their published hours: see `fit`.

    Args:
        runs: each with the number of parameters of its model.
        published: the published values of their paper.
        network_of: the network of a run.
        compute: seconds per local step without delays.
        delay: mean of the exponential delay of every step, in seconds.
        backward: seconds of `compute` that hide averages of gradients; without effect on runs that are calibrated.
        workers: number of workers to extrapolate to, see `wall_clock`.
        rates: of rehearsals, by shape.

    Raises ValueError if no compute time is given and no group can be calibrated.
    """
    groups: dict[tuple[str, ...], list[tuple[Run, int]]] = {}
    for run, count in runs:
        groups.setdefault(_same_step(run), []).append((run, count))
    known: dict[tuple[str, ...], Fit | Computing | None] = {}
    unknown: list[str] = []
    for key, group in groups.items():
        try:
            known[key] = (
                None
                if compute is not None
                else computing([run for run, _ in group], rates) or fit(group, published, network_of, delay)
            )
        except ValueError as error:
            unknown.append(str(error))
    if not known:
        raise UserError("\n".join(unknown))
    given = Machine(Network(LINKS["ethernet_10g"]), compute or 0.0, delay, backward)
    forecasts = [
        _forecast(run, count, published, network_of(run), known[_same_step(run)], given, workers)
        for run, count in runs
        if _same_step(run) in known
    ]
    return forecasts, unknown


def _forecast(
    run: Run,
    count: int,
    published: Sequence[PublishedValue],
    network: Network,
    known: Fit | Computing | None,
    given: Machine,
    workers: int | None,
) -> Forecast:
    """The wall clock of a run; without a calibration or a rehearsal, that of the `given` machine on its network."""
    link, same = network.link.name, workers in (None, run.workers)
    here = [value for value in published if value.network == link] if same else []
    fitted = rehearsal = None
    if isinstance(known, Fit):
        fitted, machine = known, known.machine(network)
        basis = "fitted" if same and run.id in known.runs and known.network == link else "predicted"
    elif isinstance(known, Computing):
        # A rehearsed step has the averages inside a worker, which `wall_clock` adds.
        inside = network.inside_seconds(count * FLOAT32_BYTES, run.gpus_per_worker)
        rehearsal, machine, basis = known, Machine(network, max(0.0, known.seconds - inside), given.delay), "rehearsed"
    else:
        machine, basis = replace(given, network=network), "given"
    clock = wall_clock(run, machine, count, workers)
    return Forecast(clock, link, published_time(run, here), basis, machine, fitted, rehearsal)


def fit(
    runs: Sequence[tuple[Run, int]],
    published: Sequence[PublishedValue],
    network_of: Callable[[Run], Network],
    delay: float = 0.0,
) -> Fit:
    """Calibrate on two published times of runs of one experiment that only average over all workers.

    The times are those of `published_time`; each is fitted with the link on which it was published. Of several
    experiments, one on the link of `network_of` is used, then that with the most certain pair, then that with the
    fewest workers: the model extrapolates upwards. The arguments are those of `forecast`.

    Raises ValueError if there is no such pair.
    """
    timings: dict[tuple[str, str], list[Timed]] = {}
    for run, count in sorted(runs, key=lambda pair: pair[0].workers):
        value = published_time(run, published)
        if not value or not value.network or any(exchange.to == "peers" for exchange in exchanges(run)):
            continue
        bare = wall_clock(run, Machine(network_of(run).linked_by(LINKS[value.network]), 0.0, delay), count)
        time = seconds_per_step(value, bare.steps) - (bare.compute + bare.waiting) / bare.steps
        timing = Timed(run.id, bare.communication / bare.steps, time, CERTAINTY.index(certainty(run, value, published)))
        timings.setdefault((value.network, run.experiment), []).append(timing)
    pairs = [(key, known) for key, known in timings.items() if len({timing.load for timing in known}) > 1]
    if not pairs:
        names = ", ".join(sorted({f"{run.paper}/{run.experiment}" for run, _ in runs}))
        raise UserError(
            f"{names}: no two published times of averages over all workers, on a declared network, to calibrate on, "
            "rehearse them or give --compute"
        )
    asked = network_of(runs[0][0]).link.name
    calibrated = [(network, calibrate(known)) for (network, _), known in pairs]
    network, best = min(calibrated, key=lambda item: (item[0] != asked, item[1].certainty))
    pair = best.more, best.less
    statuses = tuple(CERTAINTY[timing.certainty] for timing in pair)
    return Fit(best.compute, best.cost, delay, tuple(timing.name for timing in pair), statuses, network)


def published_time(run: Run, published: Iterable[PublishedValue]) -> PublishedValue | None:
    """The most certain published hours of a run at its scale, or else its seconds per step."""
    known = [value for value in published if value.scale == run.scale and value.value is not None]
    metrics = "training_hours", "seconds_per_step"
    return next(filter(None, (most_certain(known, run.experiment, run.series, metric) for metric in metrics)), None)


def seconds_per_step(time: PublishedValue, steps: float) -> float:
    """A known published time in seconds per step of a training of `steps` steps."""
    assert time.value is not None
    return time.value if time.metric == "seconds_per_step" else time.value * SECONDS_PER_HOUR / steps


def with_expected_hours(
    runs: Sequence[Run],
    costs: Sequence[Cost],
    rates: Mapping[str, Rates],
    published: Mapping[str, Sequence[PublishedValue]],
    archived: Mapping[str, float] = MappingProxyType({}),
) -> list[Cost]:
    """The costs of these runs with the hours expected and what these follow from.

    `rates` are those of rehearsals by shape, `published` the values of every paper: a time of the run, or else the
    longest one of a run with the same computation per step. `archived` are the hours of series of the repository's own
    results, `paper/experiment/series`.
    """
    steps: dict[tuple[str, ...], float] = {}
    for run in runs:
        if time := published_time(run, published[run.paper]):
            seconds = seconds_per_step(time, run.total_steps)
            steps[_same_step(run)] = max(seconds, steps.get(_same_step(run), 0.0))
    expected = []
    for run, item in zip(runs, costs, strict=True):
        gpus = run.resources.nodes * run.resources.gpus_per_node
        if rehearsed := rates.get(shape_id(run)):
            hours, source = rehearsed.hours(run, item.bytes_per_worker), rehearsed.source
        elif time := published_time(run, published[run.paper]):
            hours, source = run.total_steps * seconds_per_step(time, run.total_steps) / SECONDS_PER_HOUR, "published"
        elif longest := steps.get(_same_step(run)):
            hours, source = run.total_steps * longest / SECONDS_PER_HOUR, "published of others"
        elif known := archived.get(f"{run.paper}/{run.experiment}/{run.series}"):
            hours, source = known, "archive"
        else:
            expected.append(item)
            continue
        expected.append(replace(item, expected_hours=hours, expected_gpu_hours=gpus * hours, rate_from=source))
    return expected


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
            f"{item.published.value:g} {item.published.unit} {item.published.status}" if item.published else "-",
            item.basis if item.error is None or item.basis == "fitted" else f"{100 * item.error:+.1f} %",
        ))  # fmt: skip
    return "\n".join([*aligned(lines), *calibrations(forecasts), *limits(forecasts)])


def calibrations(forecasts: Sequence[Forecast]) -> Iterator[str]:
    """One line per rehearsal and calibration."""
    yield from dict.fromkeys(str(item.rehearsal) for item in forecasts if item.rehearsal)
    for fitted, network in dict.fromkeys((item.fit, item.network) for item in forecasts if item.fit):
        runs = [f"{_series(run)} ({status})" for run, status in zip(fitted.runs, fitted.statuses, strict=True)]
        title = LINKS[fitted.network].title
        yield f"calibrated on {' and '.join(runs)}, published for {title}: a step computes {fitted.compute:.4g} s, " + (
            f"an all-reduce takes {fitted.slowdown:.3g} times as long as the network's formula says"
            if network == fitted.network
            else f"which is carried over; an all-reduce takes what the formula says on {LINKS[network].title}"
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

"""The time of a run whose workers take turns in a process: that of its steps and messages on the paper's devices."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from resync.papers.paper import Suite
from resync.papers.paper.paper import Timing
from resync.papers.plan.cost import volume
from resync.papers.plan.forecast import fit, nodes_of
from resync.papers.plan.network import LINKS, Network
from resync.papers.plan.wallclock import Machine, RunTime, wall_clock
from resync.runs.metrics.registry import SECONDS_PER_HOUR
from resync.runs.run import Run
from resync.runs.run.in_words import listed


@dataclass(frozen=True)
class ModelledTime:
    """The modelled clock of a run until its planned end.

    Attributes:
        clock: the seconds by their parts.
        vectors: parameter vectors that a worker sends until then.
        whole: the clock of the published run for which it stands, with that run's steps.
        on: the network and the computing time in words.
        fitted: whether that run is one of the two to whose published times the computing time is fitted.
    """

    clock: RunTime
    vectors: float
    whole: RunTime
    on: str
    fitted: bool = False

    def seconds(self, steps: ArrayLike, volume_percent: ArrayLike) -> NDArray[np.float64]:
        """The time after `steps` steps: computing in proportion to them, communication to what was sent."""
        steps = np.asarray(steps, dtype=float)
        sent = np.where(steps > 0, np.asarray(volume_percent, dtype=float), 0.0) * steps / 100
        share = sent / self.vectors if self.vectors else np.zeros_like(sent)
        clock = self.clock
        return steps / clock.steps * (clock.compute + clock.waiting) + share * clock.communication

    def final(self, metric: str) -> float | None:
        """A time at the end: seconds of a step, or hours of the published run; None for any other metric."""
        known = {
            "seconds_per_step": self.clock.per_step,
            "training_hours": self.whole.total / SECONDS_PER_HOUR,
            "communication_hours": self.whole.communication / SECONDS_PER_HOUR,
        }
        return known.get(metric)


def modelled_time(suite: Suite, run: Run, num_parameters: int | None = None) -> ModelledTime | None:
    """The time of `run` on the network and devices that its paper names for its experiment.

    The run keeps its steps and rounds. What the paper gives is taken from there: the time of a step, the size of a
    message, and the number and the nodes of the workers for which those of a small run stand. `num_parameters` are
    those of the run's own model, for papers that are timed with it. None without a network or a size.
    """
    timing = suite.papers[run.paper].timing_of(run.experiment)
    size = timing and (timing.parameters or num_parameters)
    if timing is None or not size:
        return None
    return timed_on(suite, timing, run, _stood_for(suite, run, timing), size)


def timed_on(suite: Suite, timing: Timing, run: Run, reference: Run, size: int) -> ModelledTime:
    """The time of `run`, which stands for `reference`, with messages of `size` parameters on these devices."""
    network = nodes_of(reference, LINKS[timing.network], LINKS["pcie_3_x16"])
    if reference.processes < reference.workers:  # of which no nodes are known
        network = replace(network, node_size=1)
    machine, of_fit = _machine(suite, timing, reference, network, size)
    stands_for = {"workers": reference.workers, "gpus_per_worker": reference.gpus_per_worker}
    clock = wall_clock(run.model_copy(update=stands_for), machine, size)
    words = f" (fitted to published times of {listed(other.label for other in of_fit)})" if of_fit else ""
    on = f"{network.link.title}, {machine.compute:.3g} s of computing per step{words}"
    fitted = (reference.experiment, reference.series) in {(other.experiment, other.series) for other in of_fit}
    return ModelledTime(clock, float(volume(run).vectors), wall_clock(reference, machine, size), on, fitted)


def _stood_for(suite: Suite, run: Run, timing: Timing) -> Run:
    """The published run for which a small one stands; for one of our own, one of those whose times are published."""
    if own := suite.runs(run.paper, "paper", run.experiment, run.series):
        return own[0]
    timed = suite.runs(run.paper, "paper", timing.compute) if isinstance(timing.compute, str) else [run]
    return next((other for other in timed if other.workers == run.workers), timed[0])


def _machine(suite: Suite, timing: Timing, run: Run, network: Network, size: int) -> tuple[Machine, list[Run]]:
    """The devices, and on which runs they are calibrated."""
    if isinstance(timing.compute, float):
        return Machine(network, timing.compute), []
    runs = {other.series: other for other in suite.runs(run.paper, "paper", timing.compute)}
    nodes = partial(nodes_of, link=network.link, inside=network.inside)
    calibration = fit([(other, size) for other in runs.values()], suite.papers[run.paper].published, nodes)
    return calibration.machine(network), [other for other in runs.values() if other.id in calibration.runs]

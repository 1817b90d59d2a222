"""The exchanges of a run: how often, how much, with whom, and what they can overlap with."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import ceil
from typing import Literal

from resync.config import Run
from resync.config.parts import SyncOptions, Traffic
from resync.formulas.periods import rounds


@dataclass(frozen=True)
class ExchangeKind:
    """All exchanges of one kind in a run.

    Attributes:
        after: number of local steps since the previous exchange -> number of exchanges after that many steps.
        vectors: number of parameter vectors that a worker sends in one exchange; with peers, one to each.
        to: `all`, an average over all workers, or `peers`.
        overlap: `none`, workers wait for it; `bounded`, it overlaps with the computation of the steps until the next
            exchange, which waits for it; `full`, no worker ever waits for it.
        topology: the graph that gives the peers; empty for an average over all workers.
        within_round: whether it happens within a round, without ending one.
    """

    after: Mapping[int, int]
    vectors: int
    to: Literal["all", "peers"] = "all"
    overlap: Literal["none", "bounded", "full"] = "none"
    topology: str = ""
    within_round: bool = False

    @property
    def count(self) -> int:
        """Number of exchanges."""
        return sum(self.after.values())


def exchanges(run: Run) -> list[ExchangeKind]:
    """Return all exchanges of parameters in `run`, exactly as in training.

    Raises ValueError for an algorithm that declares no traffic.
    """
    options = run.sync.in_steps(run.steps_per_epoch)
    if _traffic(run, options).every == "step":
        return list(_mixes(run, options))
    lengths = round_lengths(run)
    averages = ExchangeKind(Counter(lengths), options.vectors_per_round(run.optimizer.state_vectors))
    if options.inner is None:
        return [averages]
    starts = list(accumulate(lengths[:-1])) if averages.vectors else []
    return [averages, *(replace(each, within_round=True) for each in _mixes(run, options.inner, starts))]


def round_lengths(run: Run) -> list[int]:
    """H of every round of a run, with those of the run that it continues."""
    before: list[int] = []
    for h in round_lengths(run.continued) if run.continued else []:
        if sum(before) >= (run.start_step or 0):
            break
        before.append(h)
    return before + rounds(run.period, run.lr, run.total_steps, run.warmup_steps, first=sum(before))


def _mixes(run: Run, options: SyncOptions, restarts: Sequence[int] = ()) -> Iterator[ExchangeKind]:
    """The exchanges of an algorithm that mixes after every step: one kind per phase with a fixed number of peers.

    At the steps `restarts` an average receives all messages in flight, so that the next one is sent immediately.
    """
    traffic = _traffic(run, options)
    ends = [*(first for first, _ in traffic.peers[1:]), run.total_steps]
    for (first, peers), end in zip(traffic.peers, ends, strict=True):
        if peers == 0 or traffic.topology is None:  # an average over all workers sends one vector
            yield ExchangeKind({1: end - first}, 1)
        else:
            vectors = run.workers - 1 if traffic.topology == "complete" else peers
            cuts = [first, *(step for step in restarts if first < step < end), end]
            count = sum(ceil((stop - start) / traffic.interval) for start, stop in pairwise(cuts))
            yield ExchangeKind({traffic.interval: count}, vectors, "peers", traffic.overlap, traffic.topology)


def _traffic(run: Run, options: SyncOptions) -> Traffic:
    if options.traffic is None:
        raise ValueError(f"{run.id}: sync {options.name} declares no traffic, so its cost is unknown")
    return options.traffic

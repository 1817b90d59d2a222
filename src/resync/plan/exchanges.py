"""What a run exchanges: how often, how much, with whom, and what a message can hide behind."""

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
class Exchange:
    """All exchanges of one kind in a run.

    Attributes:
        after: number of local steps since the exchange before -> how many exchanges come after so many.
        vectors: parameter vectors that a worker sends in one of them; to peers, one to each.
        to: `all`, an average over all workers, or `peers`.
        overlap: `none`, workers wait for it; `bounded`, it travels while the steps before the next one are
            computed and is waited for then; `full`, nobody ever waits.
        topology: who the peers are; empty for an average over all workers.
        within_round: whether it happens in the steps of a round and ends none.
    """

    after: Mapping[int, int]
    vectors: int
    to: Literal["all", "peers"] = "all"
    overlap: Literal["none", "bounded", "full"] = "none"
    topology: str = ""
    within_round: bool = False

    @property
    def count(self) -> int:
        """How many exchanges there are."""
        return sum(self.after.values())


def exchanges(run: Run) -> list[Exchange]:
    """Return all exchanges of parameters of `run`, exactly as training will have them.

    Raises ValueError for an algorithm that declares no traffic.
    """
    options = run.sync.in_steps(run.steps_per_epoch)
    if _traffic(run, options).every == "step":
        return list(_mixes(run, options))
    lengths = rounds(run.period, run.lr, run.total_steps, run.warmup_steps)
    averages = Exchange(Counter(lengths), options.vectors_per_round(run.optimizer.state_vectors))
    if options.inner is None:
        return [averages]
    starts = list(accumulate(lengths[:-1])) if averages.vectors else []
    return [averages, *(replace(each, within_round=True) for each in _mixes(run, options.inner, starts))]


def _mixes(run: Run, options: SyncOptions, restarts: Sequence[int] = ()) -> Iterator[Exchange]:
    """The exchanges of an algorithm that mixes all the time: one kind for each phase of a number of peers.

    At the steps `restarts` an average takes all messages, so that the next one is sent at once.
    """
    traffic = _traffic(run, options)
    ends = [*(first for first, _ in traffic.peers[1:]), run.total_steps]
    for (first, peers), end in zip(traffic.peers, ends, strict=True):
        if peers == 0 or traffic.topology is None:  # an average over all workers sends one vector
            yield Exchange({1: end - first}, 1)
        else:
            vectors = run.workers - 1 if traffic.topology == "complete" else peers
            cuts = [first, *(step for step in restarts if first < step < end), end]
            count = sum(ceil((stop - start) / traffic.interval) for start, stop in pairwise(cuts))
            yield Exchange({traffic.interval: count}, vectors, "peers", traffic.overlap, traffic.topology)


def _traffic(run: Run, options: SyncOptions) -> Traffic:
    if options.traffic is None:
        raise ValueError(f"{run.id}: sync {options.name} declares no traffic, so its cost is unknown")
    return options.traffic

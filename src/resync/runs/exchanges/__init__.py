"""The exchanges of a run: how often, how much, with whom, and what they can overlap with."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Literal

from resync.base.errors import UserError
from resync.base.settings.options import TrainingShape
from resync.runs.exchanges.virtual_time import rounds_by_clock
from resync.runs.run import Run
from resync.workers.formulas.arrivals import sending_intervals
from resync.workers.formulas.periods import Period, rounds
from resync.workers.formulas.schedules import LearningRate
from resync.workers.formulas.topology import messages
from resync.workers.sync.options.base import SyncOptions, Traffic


@dataclass(frozen=True)
class ExchangeKind:
    """All exchanges of one kind in a run.

    Attributes:
        after: number of local steps between an exchange and the previous one (the next one, for messages that may be
            late) -> number of exchanges with that many, averaged over the workers.
        vectors: number of parameter vectors that a worker sends in one exchange, to all peers together, averaged over
            the workers.
        to: `all`, an average over all workers, or `peers`.
        peers: number of peers, as in the options; 0 for an average over all workers.
        longest: number of vectors that the worker with most peers sends, one after the other; 0 for an average.
        half_duplex: whether the two workers of a pair send one after the other.
        all_reduce: the algorithm of an average over all workers; `default`: that of the network's library.
        overlap: `none`, workers wait for it; `bounded`, it overlaps with the computation of the steps until the next
            exchange, which waits for it; `full`, no worker ever waits for it.
        overlapped: number of steps that are computed while an average travels.
        of_gradients: whether it averages gradients, which may travel during the backward pass.
        topology: the graph that gives the peers; empty for an average over all workers.
        within_round: whether it happens within a round, without ending one.
    """

    after: Mapping[int, int | Fraction]
    vectors: int | Fraction
    to: Literal["all", "peers"] = "all"
    peers: int = 0
    longest: int = 0
    half_duplex: bool = False
    all_reduce: str = "default"
    overlap: Literal["none", "bounded", "full"] = "none"
    overlapped: int = 0
    of_gradients: bool = False
    topology: str = ""
    within_round: bool = False

    @property
    def count(self) -> float:
        """Number of exchanges of a worker, averaged over the workers; an int where it is whole."""
        total = Fraction(sum(self.after.values()))
        return int(total) if total.denominator == 1 else float(total)

    @property
    def sent(self) -> Fraction:
        """Number of parameter vectors that a worker sends in all exchanges, averaged over the workers."""
        return Fraction(sum(self.after.values()) * self.vectors)


def exchanges(run: Run) -> list[ExchangeKind]:
    """Return all exchanges of parameters in `run`, exactly as in training; those of a single worker are empty.

    Raises ValueError for an algorithm that declares no traffic.
    """
    options = run.sync.in_steps(run.steps_per_epoch)
    if _traffic(run, options).every == "step":
        kinds = list(_mixes(run, options))
    else:
        lengths = round_lengths(run)
        kinds = list(_after_rounds(run, options, lengths))
        if options.inner is not None:
            within = _mixes(run, options.inner, restarts=list(accumulate(lengths[:-1])))
            kinds += (replace(kind, within_round=True) for kind in within)
    return [replace(kind, vectors=0) for kind in kinds] if run.workers == 1 else kinds


def number_of_rounds(run: Run) -> int:
    """The rounds of `run`: one per step for an algorithm that communicates in every step."""
    if run.sync.needs.virtual_clock and run.total_steps:
        return rounds_by_clock(run)
    return run.total_steps if _traffic(run, run.sync).every == "step" else len(round_lengths(run))


def round_lengths(run: Run) -> list[int]:
    """H of every round of a run, with those of the run that it continues."""
    before: list[int] = []
    for h in round_lengths(run.continued) if run.continued else []:
        if sum(before) >= (run.start_step or 0):
            break
        before.append(h)
    return [*before, *_rounds(run.period, run.schedule, run.shape, first=sum(before))]


@lru_cache(maxsize=128)
def _rounds(period: Period, schedule: LearningRate, shape: TrainingShape, first: int) -> tuple[int, ...]:
    """The lengths of the rounds from step `first` on: the same for all seeds, and mostly for several series."""
    return tuple(rounds(period, schedule.of(shape), shape.total_steps, shape.warmup_steps, first=first))


def _after_rounds(run: Run, options: SyncOptions, lengths: Sequence[int]) -> Iterator[ExchangeKind]:
    """The exchanges of an algorithm with rounds of local steps: one kind per number of vectors."""
    traffic = _traffic(run, options)
    counts: dict[tuple[int | Fraction, int], Counter[int]] = defaultdict(Counter)
    exchanged = options.exchanged(lengths, run.optimizer.state_vectors)
    if traffic.topology is None:
        for (steps, vectors), number in Counter(exchanged).items():
            counts[vectors, 0][steps] += number
    else:
        for number, (steps, vectors) in enumerate(exchanged):
            [(mean, most)] = messages(traffic.topology, run.workers, 1, run.seed, number, number + 1)
            counts[whole(mean * vectors), most * int(vectors)][steps] += 1
    to: Literal["all", "peers"] = "peers" if traffic.topology else "all"
    for (vectors, longest), after in counts.items():
        yield ExchangeKind(
            after,
            vectors,
            to=to,
            peers=1 if traffic.topology else 0,
            longest=longest,
            overlapped=traffic.overlapped,
            all_reduce=traffic.all_reduce,
            topology=traffic.topology or "",
        )


def whole(number: Fraction) -> int | Fraction:
    """The number as an integer, if it is one."""
    return int(number) if number.denominator == 1 else number


def _mixes(run: Run, options: SyncOptions, restarts: Sequence[int] = ()) -> Iterator[ExchangeKind]:
    """The exchanges of an algorithm that mixes after every step: one kind per phase with a fixed number of peers.

    At the steps `restarts` a round has ended, which receives all messages in flight, so that the next one is sent
    immediately.
    """
    traffic = _traffic(run, options)
    ends = [*(first for first, _ in traffic.peers[1:]), run.total_steps]
    for (first, peers), end in zip(traffic.peers, ends, strict=True):
        if peers == 0 or traffic.topology is None:
            gradients = options.needs.engine_may_average
            yield ExchangeKind({1: end - first}, traffic.vectors, all_reduce=traffic.all_reduce, of_gradients=gradients)
        else:
            cuts = [first, *(step for step in restarts if first < step < end), end]
            after: dict[int, Fraction] = defaultdict(Fraction)
            for start, stop in pairwise(cuts):
                intervals = sending_intervals(run.seed, run.workers, traffic.staleness, start, stop)
                for steps, share in intervals.items():
                    after[steps] += share
            # Only a topology without late messages has mixing steps of several kinds.
            sent = messages(traffic.topology, run.workers, peers, run.seed, 0, end - first)
            for (mean, most), number in sent.items():
                yield ExchangeKind(
                    after if len(sent) == 1 else {1: number},
                    whole(mean * traffic.vectors),
                    to="peers",
                    peers=peers,
                    longest=most * traffic.vectors,
                    half_duplex=traffic.half_duplex,
                    overlap=traffic.overlap,
                    topology=traffic.topology,
                )


def _traffic(run: Run, options: SyncOptions) -> Traffic:
    if options.traffic is None:
        raise UserError(f"{run.id}: sync {options.name} declares no traffic, so its cost is unknown")
    return options.traffic

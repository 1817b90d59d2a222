"""What a run exchanges: how often, how much, with whom, and what a message can hide behind."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Literal

from resync.config import Run
from resync.config.components import Traffic, component
from resync.formulas.periods import rounds
from resync.plan.translate import lr_of, period_of, phases_of


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
    traffic = run.sync.component.traffic
    if traffic is None:
        raise ValueError(f"{run.id}: sync {run.sync.name} declares no traffic, so its cost is unknown")
    if traffic.every == "step":
        return list(_phases(run, traffic))
    after = Counter(rounds(period_of(run), lr_of(run), run.total_steps, run.warmup_steps))
    averages = Exchange(after, _vectors_of_a_round(run))
    base = run.sync.options.get("base", "none")
    return [averages] if base == "none" else [averages, _base(run, base)]


def _phases(run: Run, traffic: Traffic) -> Iterator[Exchange]:
    """The exchanges of an algorithm that mixes all the time: one kind for each number of peers."""
    options = run.sync.options
    declared = traffic.vectors if isinstance(traffic.vectors, int) else options[traffic.vectors]
    phases = [(0, declared)] if isinstance(declared, int) else phases_of(run, declared)
    interval = 1 + (options[traffic.delay] if traffic.delay else 0)
    ends = [*(first for first, _ in phases[1:]), run.total_steps]
    for (first, peers), end in zip(phases, ends, strict=True):
        if peers == 0 or traffic.to == "all":  # an average over all workers sends one vector, as an all-reduce does
            yield Exchange({1: end - first}, peers or 1)
        else:
            vectors = run.workers - 1 if options.get("topology") == "complete" else peers
            mixes = {interval: ceil((end - first) / interval)}
            yield Exchange(mixes, vectors, "peers", traffic.overlap, options["topology"])


def _vectors_of_a_round(run: Run) -> int:
    """The parameters, unless they are not averaged, and the state of the optimizer that is averaged with them."""
    options = run.sync.options
    fields = len(options.get("average_state", ()))
    if options.get("buffers") == "average":
        fields = optimizer_vectors(run)
    return fields + (options.get("average") is not False)


def optimizer_vectors(run: Run) -> int:
    """Vectors as long as the parameters in the optimizer's state of a worker."""
    return 2 if run.optimizer.name == "adamw" else int(run.optimizer.options["momentum"] > 0)


def _base(run: Run, name: str) -> Exchange:
    """What the base algorithm of an outer optimizer exchanges in every step, with its default options."""
    base = component("sync", name)
    assert base.traffic is not None
    if base.traffic.to == "all":
        return Exchange({1: run.total_steps}, 1, within_round=True)
    topology = base.config.model_validate({}).topology
    return Exchange({1: run.total_steps}, 1, "peers", base.traffic.overlap, topology, within_round=True)

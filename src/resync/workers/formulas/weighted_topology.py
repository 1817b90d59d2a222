"""Topologies whose mixing steps have a weight for every message: see the second table of resync.topology."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import Literal

from resync.base.errors import UserError
from resync.workers.formulas import equitopo, finite_time
from resync.workers.formulas.equitopo import Messages

WeightedName = Literal[
    "hypercube", "base_graph", "simple_base_graph", "d_equistatic", "u_equistatic", "od_equidyn", "ou_equidyn",
    "random_matching", "undirected_ring", "chain", "binary_tree", "star",
]  # fmt: skip


@dataclass(frozen=True)
class WeightedTopology:
    """A topology whose mixing steps say for every message with which weight it is added.

    Attributes:
        name: its name in configurations.
        step: (num_workers, peers, k, seed) -> mixing step k of at least two workers.
        steps: (num_workers, peers) -> number of mixing steps after which they repeat; 0 if each is drawn anew.
        random: whether they depend on the seed.
        one_peer: whether a worker has at most one peer in every mixing step.
    """

    name: WeightedName
    step: Callable[[int, int, int, int], Messages]
    steps: Callable[[int, int], int]
    random: bool = True
    one_peer: bool = False
    weighted = True
    regular = True
    bipartite = False

    def cycle(self, num_workers: int, peers: int) -> int:
        """The number of mixing steps after which they repeat, 0 if they are drawn anew; ValueError as in `weights`."""
        if peers < 1:
            raise UserError(f"peers is {peers}, expected >= 1")
        if num_workers == 1:
            return 1
        if self.one_peer and peers > 1:
            raise UserError(f"topology {self.name} has 1 peer per worker, found peers = {peers}")
        return self.steps(num_workers, peers)

    def weights(self, num_workers: int, k: int, peers: int, seed: int) -> tuple[Mapping[int, Fraction], ...]:
        """The weight of the message from each worker to each of its out-peers in mixing step `k`, ascending."""
        cycle = self.cycle(num_workers, peers)
        return _weights(self, num_workers, k % cycle if cycle else k, peers, seed if self.random else 0)


@lru_cache(maxsize=1024)
def _weights(
    topology: WeightedTopology, num_workers: int, k: int, peers: int, seed: int
) -> tuple[Mapping[int, Fraction], ...]:
    weights: tuple[dict[int, Fraction], ...] = tuple({} for _ in range(num_workers))
    messages = topology.step(num_workers, peers, k, seed) if num_workers > 1 else {}
    for (sender, receiver), weight in sorted(messages.items()):
        weights[sender][receiver] = weight
    return weights


def _exact(name: WeightedName, build: Callable[[range, int], Sequence[finite_time.Edges]]) -> WeightedTopology:
    """A graph of `finite_time`, whose workers exchange their vectors."""

    def step(num_workers: int, peers: int, k: int, seed: int) -> Messages:
        pairs = build(range(num_workers), peers)[k].items()
        return {edge: weight for (i, j), weight in pairs for edge in ((i, j), (j, i))}

    steps = lru_cache(maxsize=256)(lambda num_workers, peers: len(build(range(num_workers), peers)))
    return WeightedTopology(name, step, steps, random=False)


def _static(name: WeightedName, symmetric: bool) -> WeightedTopology:
    """A graph of `equitopo` that is drawn once."""
    draw = partial(equitopo.random_static, symmetric=symmetric)
    return WeightedTopology(name, lambda n, peers, k, seed: draw(n, peers, seed), lambda *_: 1)


def _drawn(name: WeightedName, draw: Callable[[int, int, int], Messages]) -> WeightedTopology:
    """A graph of `equitopo` that is drawn in every mixing step."""
    return WeightedTopology(name, lambda n, peers, k, seed: draw(n, k, seed), lambda *_: 0, one_peer=True)


def _neighbours(name: WeightedName, edges: Callable[[int], Iterable[tuple[int, int]]]) -> WeightedTopology:
    """A graph that stays, with Metropolis weights: 1 / (1 + the larger degree of the two workers)."""

    def step(num_workers: int, peers: int, k: int, seed: int) -> Messages:
        pairs = list(edges(num_workers))
        degrees = Counter(worker for pair in pairs for worker in pair)
        weights = {pair: Fraction(1, 1 + max(degrees[worker] for worker in pair)) for pair in pairs}
        return {edge: weight for (i, j), weight in weights.items() for edge in ((i, j), (j, i))}

    def steps(num_workers: int, peers: int) -> int:
        if peers != 1:
            raise UserError(f"topology {name} always uses all neighbours: found peers = {peers}, omit it")
        return 1

    return WeightedTopology(name, step, steps, random=False)


def _chain(num_workers: int) -> list[tuple[int, int]]:
    return [(worker - 1, worker) for worker in range(1, num_workers)]


WEIGHTED = (
    _exact("hypercube", finite_time.hypercube),
    _exact("base_graph", finite_time.base_graph),
    _exact("simple_base_graph", finite_time.simple_base_graph),
    _static("d_equistatic", symmetric=False),
    _static("u_equistatic", symmetric=True),
    _drawn("od_equidyn", equitopo.random_shift),
    _drawn("ou_equidyn", equitopo.random_equidyn_matching),
    _drawn("random_matching", equitopo.random_matching),
    _neighbours("undirected_ring", lambda n: [*_chain(n), *([(0, n - 1)] if n > 2 else [])]),
    _neighbours("chain", _chain),
    _neighbours("binary_tree", lambda n: [(worker // 2, worker) for worker in range(1, n)]),
    _neighbours("star", lambda n: [(0, worker) for worker in range(1, n)]),
)

"""Peers in every mixing step: pure functions that every worker evaluates on its own, without negotiation.

Every worker has a peer list: an ordered list of distinct peers. In mixing step k (0-based, counted from the start or
from the last change of `peers`) a topology with p peers picks the entries (j + k * p) mod len(peer list), j = 0..p-1.
Names and peer lists are those of the May 2019 version of the original code (Assran et al. 2019), whose graphs of these
numbers produced the published results; 4 and 5 exist in the 2023 version only.

| number | name                  | peer list of worker r, as offsets modulo the number of workers          |
|--------|-----------------------|-------------------------------------------------------------------------|
| 0      | symmetric_exponential | +1, -1, +2, -2, +4, -4, ...                                             |
| 1      | bipartite_exponential | +1, -1, +3, -3, +5, -5, ... (1 + 2^i); even workers take opposite signs |
| 2      | linear                | +1, -1, +3, -3, +5, -5, ... (odd numbers)                               |
| 3      | bipartite_linear      | the same; even workers take opposite signs                              |
| 4      | ring                  | +1, -1; static: always the first p entries                              |
| 5      | exponential           | j * (p + 1)^i for i = 0, 1, ... and j = 1..p; with one peer 1, 2, 4 ... |
| none   | directed_exponential  | 1, 2, 4, ...; with any number of peers                                  |
| none   | complete              | +1, +2, +3, ...; static: always the whole peer list                     |
| none   | cycle                 | the same; the next p entries in every mixing step                       |
| none   | random                | the same; every worker draws p entries in every mixing step             |
| none   | random_exponential    | that of `exponential`; every worker draws p entries in every mixing step |

The paper's "directed exponential graph", which cycles through 1, 2, 4, ... hops, is `directed_exponential`. With one
peer `exponential` is the same; with two it is another graph, which the paper did not have: in May 2019 no peer list
depended on the number of peers, and two peers were the next two entries.

On the bipartite graphs even (passive) and odd (active) workers form pairs: every worker receives from exactly the
workers that it sends to. All topologies except `random` and `random_exponential` are regular: every worker receives as
many messages as it sends.

The following topologies have mixing steps of their own instead, with a weight for every message. They are regular, all
but `d_equistatic` and `od_equidyn` are symmetric, and in some steps some workers have fewer peers than others, or none.
`peers` is the number k or M of their papers.

| name              | mixing steps                                                                                |
|-------------------|---------------------------------------------------------------------------------------------|
| hypercube         | one per factor of n up to k + 1, which average n = 2^m workers with one peer in m steps     |
| base_graph        | Base-(k+1) graph: average any number of workers exactly, with at most k peers in each step  |
| simple_base_graph | its simple form                                                                             |
| d_equistatic      | always the same M offsets, which are drawn once, with repeats                               |
| u_equistatic      | the same in both directions: up to 2 M peers                                                |
| od_equidyn        | one offset for all workers, drawn in every mixing step                                      |
| ou_equidyn        | pairs of workers so far apart, drawn in every mixing step                                   |
| random_matching   | any pairs of workers, drawn in every mixing step                                            |
| undirected_ring   | always the workers r - 1 and r + 1                                                          |
| chain             | the same without the edge that closes the ring                                              |
| binary_tree       | always r // 2, 2 r and 2 r + 1 (Vogels et al. 2021): the root 1 has a further leaf, 0       |
| star              | worker 0 and all others                                                                     |

They have no peer lists. The first three are built in `resync.workers.formulas.finite_time`, the next five in
`resync.workers.formulas.equitopo`, where their sources stand. The last four have Metropolis weights, 1 / (1 + the
larger degree of the two workers), and take no `peers`.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from resync.base.errors import UserError
from resync.workers.formulas.weighted_topology import WEIGHTED, WeightedName, WeightedTopology

__all__ = [
    "TOPOLOGIES", "Topology", "TopologyName", "cycle", "in_peers",
    "messages", "out_peers", "partner", "peer_list", "resolve",
]  # fmt: skip

TopologyName = Literal[
    "symmetric_exponential", "bipartite_exponential", "linear", "bipartite_linear", "ring", "exponential",
    "directed_exponential", "complete", "cycle", "random", "random_exponential", WeightedName,
]  # fmt: skip


@dataclass(frozen=True)
class Topology:
    """A topology: the construction of its peer lists and the choice of peers from them.

    Attributes:
        name: its name in configurations.
        offsets: (num_workers, peers) -> offsets in order, before repeats and the worker itself are removed.
        pick: the entries of the peer list that a mixing step uses: the next p, the first p, all, or p random ones.
        bipartite: whether even workers take the offsets with opposite sign, so that workers exchange in pairs.
    """

    name: TopologyName
    offsets: Callable[[int, int], Iterable[int]]
    pick: Literal["next", "first", "all", "random"] = "next"
    bipartite: bool = False
    weighted = False
    """Whether its messages have weights of their own."""

    @property
    def regular(self) -> bool:
        """Whether every worker receives as many messages as it sends, so that uniform mixing keeps all weights at 1."""
        return self.pick != "random"

    @property
    def random(self) -> bool:
        return self.pick == "random"


def out_peers(topology: str, worker: int, num_workers: int, k: int, peers: int = 1, seed: int = 0) -> list[int]:
    """Return the workers that `worker` sends to in mixing step `k`, in the order of its peer list; none if alone.

    Args:
        topology: its name, see the tables of this module.
        worker: the sender, 0..num_workers-1.
        num_workers: number of workers.
        k: number of the mixing step, 0-based.
        peers: out-peers of a worker per mixing step; `complete` accepts the default or num_workers - 1.
        seed: seed of the random topologies, without effect on the others.

    Raises:
        ValueError: for an unknown topology, a number out of range, more peers than the peer list has, or an odd
            number of workers on a bipartite graph.
    """
    chosen = resolve(topology)
    _check_workers(worker, num_workers, k)
    if isinstance(chosen, WeightedTopology):
        return list(chosen.weights(num_workers, k, peers, seed)[worker])
    offsets = _peer_offsets(chosen, num_workers, peers)
    picks: Iterable[int]
    if chosen.pick == "all" or num_workers == 1:
        picks = range(len(offsets))
    elif chosen.pick == "first":
        picks = range(peers)
    elif chosen.pick == "random":
        picks = _draws(num_workers, len(offsets), peers, k, seed)[worker]
    else:
        picks = [(j + k * peers) % len(offsets) for j in range(peers)]
    return [_reach(chosen, worker, offsets[i], num_workers) for i in picks]


def in_peers(topology: str, worker: int, num_workers: int, k: int, peers: int = 1, seed: int = 0) -> list[int]:
    """Return the workers with `worker` among their `out_peers`, ascending; arguments and errors as in `out_peers`."""
    chosen = resolve(topology)
    receivers = out_peers(topology, worker, num_workers, k, peers, seed)
    if isinstance(chosen, WeightedTopology):
        return [s for s, sent in enumerate(chosen.weights(num_workers, k, peers, seed)) if worker in sent]
    if not chosen.regular:
        senders = (other for other in range(num_workers) if other != worker)
        return [s for s in senders if worker in out_peers(topology, s, num_workers, k, peers, seed)]
    if chosen.bipartite:
        return sorted(receivers)
    # All workers use the same offsets, so the senders lie opposite to the receivers.
    return sorted((2 * worker - receiver) % num_workers for receiver in receivers)


def peer_list(topology: str, worker: int, num_workers: int, peers: int = 1) -> list[int]:
    """Return all workers that `worker` ever sends to, in order; arguments and errors as in `out_peers`."""
    chosen = resolve(topology)
    _check_workers(worker, num_workers, k=0)
    if isinstance(chosen, WeightedTopology):
        raise UserError(f"topology {chosen.name} has no peer lists, but mixing steps: see out_peers")
    return [_reach(chosen, worker, offset, num_workers) for offset in _peer_offsets(chosen, num_workers, peers)]


def cycle(topology: str, num_workers: int, peers: int = 1) -> int:
    """Return the number of mixing steps after which they repeat, 0 if they are drawn anew; errors as in `out_peers`."""
    chosen = resolve(topology)
    if isinstance(chosen, WeightedTopology):
        return chosen.cycle(num_workers, peers)
    offsets = _peer_offsets(chosen, num_workers, peers)
    return 0 if chosen.random else max(1, len(offsets))


@lru_cache(maxsize=64)
def messages(
    topology: str, num_workers: int, peers: int, seed: int, first: int, last: int
) -> Mapping[tuple[Fraction, int], int]:
    """Return how much is sent in the mixing steps first..last-1; errors as in `out_peers`.

    (messages of a worker, averaged over the workers; those of the worker that sends most) -> mixing steps.
    """
    chosen = resolve(topology)
    if isinstance(chosen, Topology):
        receivers = num_workers - 1 if chosen.pick == "all" else peers
        return {(Fraction(receivers), receivers): last - first}
    repeats = chosen.cycle(num_workers, peers) or last - first
    counts: Counter[tuple[Fraction, int]] = Counter()
    for k in range(first, min(last, first + repeats)):
        sent = [len(row) for row in chosen.weights(num_workers, k, peers, seed)]
        counts[Fraction(sum(sent), num_workers), max(sent)] += len(range(k, last, repeats))
    return counts


def partner(topology: str, worker: int, num_workers: int, number: int) -> int | None:
    """Return the partner of an odd (active) worker for its pairwise average `number`; None for an even worker.

    Active workers ask and passive ones answer, which prevents deadlocks from circular waits. A single worker has no
    partner.
    """
    peers = peer_list(topology, worker, num_workers)
    return peers[number % len(peers)] if worker % 2 and peers else None


def resolve(topology: str) -> Topology | WeightedTopology:
    """Return the topology of this name, or raise a ValueError that lists them."""
    if topology not in TOPOLOGIES:
        raise UserError(f"no topology {topology!r}: expected {', '.join(TOPOLOGIES)}")
    return TOPOLOGIES[topology]


def _reach(topology: Topology, worker: int, offset: int, num_workers: int) -> int:
    backwards = topology.bipartite and worker % 2 == 0
    return (worker - offset if backwards else worker + offset) % num_workers


@lru_cache(maxsize=64)
def _draws(num_workers: int, size: int, peers: int, k: int, seed: int) -> tuple[tuple[int, ...], ...]:
    # A text seed is hashed by a fixed function, so that all processes and machines draw the same positions.
    draw = random.Random(f"{seed}/{k}")
    return tuple(tuple(draw.sample(range(size), peers)) for _ in range(num_workers))


@lru_cache(maxsize=256)
def _peer_offsets(topology: Topology, num_workers: int, peers: int) -> tuple[int, ...]:
    if peers < 1:
        raise UserError(f"peers is {peers}, expected >= 1")
    if num_workers == 1:
        return ()
    where = f"topology {topology.name} with {num_workers} workers"
    if topology.bipartite and num_workers % 2:
        raise UserError(f"{where}: expected an even number of workers, because it pairs even with odd workers")
    offsets = (offset % num_workers for offset in topology.offsets(num_workers, peers))
    unique = tuple(dict.fromkeys(offset for offset in offsets if offset != 0))
    if topology.pick == "all" and peers not in (1, len(unique)):
        raise UserError(f"{where} always uses all {len(unique)} peers: found peers = {peers}, omit it")
    if peers > len(unique):
        raise UserError(f"{where} has {len(unique)} peers per worker, found peers = {peers}")
    return unique


def _check_workers(worker: int, num_workers: int, k: int) -> None:
    if num_workers < 1:
        raise UserError(f"num_workers is {num_workers}, expected >= 1")
    if not 0 <= worker < num_workers:
        raise UserError(f"worker is {worker}, expected 0..{num_workers - 1}")
    if k < 0:
        raise UserError(f"the number of the mixing step is {k}, expected >= 0")


def _powers(base: int, num_workers: int) -> Iterator[int]:
    # Integers, because a floating-point log loses a level at exact powers (log_3 243 gives 4).
    power = 1
    while power < num_workers:
        yield power
        power *= base


def _both_ways(offsets: Iterable[int]) -> Iterator[int]:
    for offset in offsets:
        yield offset
        yield -offset


def _bipartite_exponential(n: int, peers: int) -> Iterator[int]:
    return _both_ways(1 if power == 1 else 1 + power for power in _powers(2, n))


def _exponential(n: int, peers: int) -> Iterator[int]:
    return (j * power for power in _powers(peers + 1, n) for j in range(1, peers + 1))


_LISTED = (
    Topology("symmetric_exponential", lambda n, peers: _both_ways(_powers(2, n))),
    Topology("bipartite_exponential", _bipartite_exponential, bipartite=True),
    Topology("linear", lambda n, peers: _both_ways(range(1, n, 2))),
    Topology("bipartite_linear", lambda n, peers: _both_ways(range(1, n, 2)), bipartite=True),
    Topology("ring", lambda n, peers: _both_ways([1]), pick="first"),
    Topology("exponential", _exponential),
    Topology("directed_exponential", lambda n, peers: _powers(2, n)),
    Topology("complete", lambda n, peers: range(1, n), pick="all"),
    Topology("cycle", lambda n, peers: range(1, n)),
    Topology("random", lambda n, peers: range(1, n), pick="random"),
    Topology("random_exponential", _exponential, pick="random"),
)
TOPOLOGIES: dict[str, Topology | WeightedTopology] = {
    **{topology.name: topology for topology in _LISTED},
    **{topology.name: topology for topology in WEIGHTED},
}

"""Who sends to whom in which mix: pure functions that every worker evaluates itself; nothing is negotiated.

Every worker has a book, an ordered list of peers without repeats. At mix number k (0-based, counted since the
start or since `peers` was last changed) a topology with p peers picks the entries (j + k * p) mod len(book),
j = 0..p-1. Names, numbers and books are those of the version of May 2019 of the original code (Assran et al.
2019), whose graphs produced the published results; 4 and 5 exist in the version of 2023 only.

| number | name                  | book of rank r, as offsets modulo the number of workers                |
|--------|-----------------------|------------------------------------------------------------------------|
| 0      | symmetric_exponential | +1, -1, +2, -2, +4, -4, ...                                            |
| 1      | bipartite_exponential | +1, -1, +3, -3, +5, -5, ... (1 + 2^i); even ranks take opposite signs  |
| 2      | linear                | +1, -1, +3, -3, +5, -5, ... (odd numbers)                              |
| 3      | bipartite_linear      | the same; even ranks take opposite signs                               |
| 4      | ring                  | +1, -1; static: always the first p entries                             |
| 5      | exponential           | j * (p + 1)^i for i = 0, 1, ... and j = 1..p; with one peer 1, 2, 4... |
| none   | complete              | +1, +2, +3, ...; static: always the whole book                         |
| none   | cycle                 | the same, p entries after the other                                    |
| none   | random                | the same; every rank draws p entries, anew in every mix                |
| none   | random_exponential    | that of `exponential`, drawn from in the same way                      |

The paper's "directed exponential graph", which cycles through 1, 2, 4, ... hops, is `exponential` with one
peer.

On the bipartite graphs even (passive) and odd (active) ranks form pairs: every rank receives from exactly the
ranks that it sends to. All topologies but the random ones are regular: every rank receives as much as it sends.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal


@dataclass(frozen=True)
class Topology:
    """How a topology builds its books and picks from them.

    Attributes:
        name: what it is called in configurations.
        offsets: (world_size, peers) -> offsets in order, before repeats and the rank itself are dropped.
        pick: the entries of the book that one mix uses: the next p, the first p, all, or p random ones.
        bipartite: even ranks take the offsets with opposite sign, so that ranks exchange in pairs.
    """

    name: str
    offsets: Callable[[int, int], Iterable[int]]
    pick: Literal["next", "first", "all", "random"] = "next"
    bipartite: bool = False

    @property
    def regular(self) -> bool:
        """Whether every rank receives as much as it sends, so that uniform mixing keeps all weights at 1."""
        return self.pick != "random"


def out_peers(topology: str | int, rank: int, world_size: int, k: int, peers: int = 1, seed: int = 0) -> list[int]:
    """Return the ranks that `rank` sends to in mix number `k`, in the order of its book; none for one worker.

    Args:
        topology: name or number, see the table of this module.
        rank: the sender, 0..world_size-1.
        world_size: number of workers.
        k: mix number, 0-based.
        peers: ranks that one rank sends to in one mix; `complete` takes its default or world_size - 1.
        seed: chooses the draws of the random topologies; the others have nothing to draw.

    Raises:
        ValueError: no such topology, a number out of range, more peers than the book has, or an odd number
            of workers on a bipartite graph.
    """
    chosen = resolve(topology)
    _check_ranks(rank, world_size, k)
    offsets = _book_offsets(chosen, world_size, peers)
    picks: Iterable[int]
    if chosen.pick == "all" or world_size == 1:
        picks = range(len(offsets))
    elif chosen.pick == "first":
        picks = range(peers)
    elif chosen.pick == "random":
        picks = _draws(world_size, len(offsets), peers, k, seed)[rank]
    else:
        picks = [(j + k * peers) % len(offsets) for j in range(peers)]
    return [_reach(chosen, rank, offsets[i], world_size) for i in picks]


def in_peers(topology: str | int, rank: int, world_size: int, k: int, peers: int = 1, seed: int = 0) -> list[int]:
    """Return the ranks that have `rank` among their `out_peers`, ascending; arguments and errors as there."""
    chosen = resolve(topology)
    receivers = out_peers(topology, rank, world_size, k, peers, seed)
    if not chosen.regular:
        senders = (other for other in range(world_size) if other != rank)
        return [s for s in senders if rank in out_peers(topology, s, world_size, k, peers, seed)]
    if chosen.bipartite:
        return sorted(receivers)
    # All ranks use the same offsets, so the senders lie opposite to the receivers.
    return sorted((2 * rank - receiver) % world_size for receiver in receivers)


def book(topology: str | int, rank: int, world_size: int, peers: int = 1) -> list[int]:
    """Return all ranks that `rank` ever sends to, in order; arguments and errors as for `out_peers`."""
    chosen = resolve(topology)
    _check_ranks(rank, world_size, k=0)
    return [_reach(chosen, rank, offset, world_size) for offset in _book_offsets(chosen, world_size, peers)]


def resolve(topology: str | int) -> Topology:
    """Return the topology of this name or number, or raise a ValueError that lists them."""
    if isinstance(topology, int) and not isinstance(topology, bool) and 0 <= topology < len(_NUMBERED):
        return _NUMBERED[topology]
    if isinstance(topology, str) and topology in TOPOLOGIES:
        return TOPOLOGIES[topology]
    expected = f"a number 0-{len(_NUMBERED) - 1} or {', '.join(TOPOLOGIES)}"
    raise ValueError(f"no topology {topology!r}: expected {expected}")


def _reach(topology: Topology, rank: int, offset: int, world_size: int) -> int:
    backwards = topology.bipartite and rank % 2 == 0
    return (rank - offset if backwards else rank + offset) % world_size


@lru_cache(maxsize=64)
def _draws(world_size: int, size: int, peers: int, k: int, seed: int) -> tuple[tuple[int, ...], ...]:
    """Return `peers` positions in a book of `size` for every rank."""
    # A text seed is hashed by a fixed function, so all processes and machines draw the same.
    draw = random.Random(f"{seed}/{k}")
    return tuple(tuple(draw.sample(range(size), peers)) for _ in range(world_size))


@lru_cache(maxsize=256)
def _book_offsets(topology: Topology, world_size: int, peers: int) -> tuple[int, ...]:
    if peers < 1:
        raise ValueError(f"peers is {peers}, expected >= 1")
    if world_size == 1:
        return ()
    where = f"topology {topology.name} with {world_size} workers"
    if topology.bipartite and world_size % 2:
        raise ValueError(f"{where}: expected an even number of workers, it pairs even with odd ranks")
    offsets = (offset % world_size for offset in topology.offsets(world_size, peers))
    unique = tuple(dict.fromkeys(offset for offset in offsets if offset != 0))
    if topology.pick == "all" and peers not in (1, len(unique)):
        raise ValueError(f"{where} always uses all {len(unique)} peers: found peers = {peers}, leave it out")
    if peers > len(unique):
        raise ValueError(f"{where} has {len(unique)} peers for a worker, found peers = {peers}")
    return unique


def _check_ranks(rank: int, world_size: int, k: int) -> None:
    if world_size < 1:
        raise ValueError(f"world_size is {world_size}, expected >= 1")
    if not 0 <= rank < world_size:
        raise ValueError(f"rank is {rank}, expected 0..{world_size - 1}")
    if k < 0:
        raise ValueError(f"the mix number is {k}, expected >= 0")


def _powers(base: int, world_size: int) -> Iterator[int]:
    # Integers, because a floating-point log loses a level at exact powers (log_3 243 gives 4).
    power = 1
    while power < world_size:
        yield power
        power *= base


def _both_ways(offsets: Iterable[int]) -> Iterator[int]:
    for offset in offsets:
        yield offset
        yield -offset


def _symmetric_exponential(world_size: int, peers: int) -> Iterator[int]:
    return _both_ways(_powers(2, world_size))


def _bipartite_exponential(world_size: int, peers: int) -> Iterator[int]:
    return _both_ways(1 if power == 1 else 1 + power for power in _powers(2, world_size))


def _odd(world_size: int, peers: int) -> Iterator[int]:
    return _both_ways(range(1, world_size, 2))


def _neighbours(world_size: int, peers: int) -> Iterator[int]:
    return _both_ways([1])


def _exponential(world_size: int, peers: int) -> Iterator[int]:
    return (j * power for power in _powers(peers + 1, world_size) for j in range(1, peers + 1))


def _all(world_size: int, peers: int) -> Iterable[int]:
    return range(1, world_size)


_NUMBERED = (
    Topology("symmetric_exponential", _symmetric_exponential),
    Topology("bipartite_exponential", _bipartite_exponential, bipartite=True),
    Topology("linear", _odd),
    Topology("bipartite_linear", _odd, bipartite=True),
    Topology("ring", _neighbours, pick="first"),
    Topology("exponential", _exponential),
)
_UNNUMBERED = (
    Topology("complete", _all, pick="all"),
    Topology("cycle", _all),
    Topology("random", _all, pick="random"),
    Topology("random_exponential", _exponential, pick="random"),
)
TOPOLOGIES = {topology.name: topology for topology in _NUMBERED + _UNNUMBERED}

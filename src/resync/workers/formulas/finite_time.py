"""Graphs that average any number of workers exactly within a few mixing steps, each with at most `peers` peers.

A mixing step is a mapping from pairs (i, j) with i < j to the weight with which i and j exchange their vectors; what
the weights of a worker leave of 1 is its self weight. Constructions: Takezawa et al. 2023, "Beyond exponential graph:
communication-efficient topologies for decentralized learning via finite-time convergence", algorithms 1 (k-peer
hyper-hypercube), 2 (simple Base-(k+1) graph) and 3 (Base-(k+1) graph); the order of the workers is that of their code.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from math import prod

from resync.base.errors import UserError

Edges = Mapping[tuple[int, int], Fraction]
"""One mixing step: (i, j) with i < j -> weight."""


def base_graph(workers: Sequence[int], peers: int) -> list[Edges]:
    """The mixing steps of the Base-(k+1) graph, k = `peers`: the simple one, or a shorter product with a hypercube.

    With n = p q, where no prime factor of p is above k + 1, p groups of q workers average by simple graphs, then q
    groups, of one worker of each, by hypercubes.
    """
    size = len(workers) // prod(_factors(len(workers), peers))
    within = _together(simple_base_graph(group, peers) for group in _blocks(workers, size))
    across = _together(hypercube(workers[place::size], peers) for place in range(size))
    simple = simple_base_graph(workers, peers)
    return simple if len(simple) < len(within) + len(across) else within + across


def hypercube(workers: Sequence[int], peers: int) -> list[Edges]:
    """The mixing steps of the hyper-hypercube, which with one peer is the one-peer hypercube.

    Places of workers are numbers with a digit per factor of how many there are; in step l, those that share all other
    digits average.

    Raises ValueError for a number of workers with a prime factor above `peers` + 1.
    """
    factors = _factors(len(workers), peers)
    if prod(factors) != len(workers):
        raise UserError(f"topology hypercube with {len(workers)} workers and {peers} peers: expected a number of "
                        f"workers without prime factors above {peers + 1}")  # fmt: skip
    steps: list[Edges] = []
    stride = 1
    for factor in factors:
        firsts = (first for first in range(len(workers)) if first // stride % factor == 0)
        steps.append(_averages([workers[first + digit * stride] for digit in range(factor)] for first in firsts))
        stride *= factor
    return steps


def simple_base_graph(workers: Sequence[int], peers: int) -> list[Edges]:
    """The mixing steps of the simple Base-(k+1) graph, k = `peers`.

    First each part averages, then it exchanges with all later parts together, then its equal blocks average. A part has
    as many workers as a digit of n in base k + 1 stands for, and its blocks powers of k + 1.
    """
    if prod(_factors(len(workers), peers)) == len(workers):
        return hypercube(workers, peers)
    parts = list(_parts(workers, peers + 1))
    wholes = [hypercube(part, peers) for part, _ in parts]
    blocks = [_together(hypercube(block, peers) for block in _blocks(part, size)) for part, size in parts]
    averaging = [blocks[i] if len(part) > peers else wholes[i] for i, (part, _) in enumerate(parts)]
    # Shorter graphs repeat their steps.
    steps = [_union(graph[number % len(graph)] for graph in wholes if graph) for number in range(len(wholes[0]))]
    for number in range(1 + len(blocks[0])):
        step: dict[tuple[int, int], Fraction] = {}
        for i, graph in enumerate(averaging):
            if i < number or i == number == len(parts) - 1:
                # A part has begun to average its blocks when it had exchanged with the later ones.
                begun = number - i - (1 if i < len(parts) - 1 else 0)
                step |= graph[begun % len(graph)] if graph else {}
        if number < len(parts) - 1:
            step |= _exchange(parts[number:], peers)
        steps.append(step)
    return steps


def _exchange(parts: Sequence[tuple[Sequence[int], int]], peers: int) -> Edges:
    """Every worker of the later parts exchanges with one of each block of the first; those left over average."""
    (first, size), later = parts[0], [part for part, _ in parts[1:]]
    free = [list(block) for block in _blocks(first, size)]
    weight = Fraction(len(first), len(first) + sum(map(len, later))) / len(free)
    edges = {(block.pop(), worker): weight for part in reversed(later) for worker in part for block in free}
    return edges | _averages(_blocks([worker for block in free for worker in block], peers + 1))


def _parts(workers: Sequence[int], base: int) -> Iterator[tuple[Sequence[int], int]]:
    """The parts of the workers that the digits of their number in a base stand for, and the size of their blocks."""
    size = 1
    while size * base <= len(workers):
        size *= base
    while workers:
        length = len(workers) // size * size
        if length:
            yield workers[:length], size
        workers, size = workers[length:], size // base


def _factors(number: int, peers: int) -> list[int]:
    """Factors up to `peers` + 1, as large as possible, ascending; their product is a divisor of `number`."""
    factors = []
    for factor in range(peers + 1, 1, -1):
        while number % factor == 0:
            factors.append(factor)
            number //= factor
    return factors[::-1]


def _averages(groups: Iterable[Sequence[int]]) -> dict[tuple[int, int], Fraction]:
    return {pair: Fraction(1, len(group)) for group in groups for pair in combinations(group, 2)}


def _blocks(workers: Sequence[int], size: int) -> list[Sequence[int]]:
    return [workers[first : first + size] for first in range(0, len(workers), size)]


def _together(graphs: Iterable[Sequence[Edges]]) -> list[Edges]:
    """The graphs of disjoint groups, which have the same number of mixing steps, at the same time."""
    return [_union(steps) for steps in zip(*graphs, strict=True)]


def _union(steps: Iterable[Edges]) -> Edges:
    return {pair: weight for step in steps for pair, weight in step.items()}

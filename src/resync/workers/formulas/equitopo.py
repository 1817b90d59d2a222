"""EquiTopo graphs and random matchings: mixing steps that are drawn, for any number of workers.

Every worker draws the same numbers from a named stream, so that no worker has to tell another. EquiTopo: Song et al.
2022, "Communication-efficient topologies for decentralized learning with O(1) consensus rate": `static` is
D-EquiStatic and its symmetric form U-EquiStatic, `shift` is OD-EquiDyn and `matching` OU-EquiDyn, both with all n - 1
offsets as basis. A mixing step is a mapping from (sender, receiver) to the weight of the message; what the weights that
a worker sends with leave of 1 is its self weight.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy.random import Generator

ETA = Fraction(1, 2)
"""The step size of the drawn EquiTopo graphs, the part of a vector that is mixed. With 1, the default of the authors'
functions, workers all but swap their vectors: in the mean over draws, one step of `shift` leaves the factor
a^2 + b^2 - 2 a b / (n - 1) of the squared distances from the mean, where b = eta (n - 1) / n and a = 1 - b."""
Messages = dict[tuple[int, int], Fraction]
"""One mixing step: (sender, receiver) -> weight."""


def static(num_workers: int, offsets: Sequence[int], *, symmetric: bool) -> Messages:
    """The mean over M offsets, which may repeat, of graphs in which every worker sends to the one so far away.

    `symmetric`: the mean of that and its transpose, with up to 2 M peers.
    """
    signed = [*offsets, *(-offset for offset in offsets)] if symmetric else offsets
    counts = Counter(offset % num_workers for offset in signed)
    return {
        (worker, (worker + offset) % num_workers): _weight(num_workers) * count / len(signed)
        for worker in range(num_workers)
        for offset, count in counts.items()
    }


def shift(num_workers: int, offset: int, eta: Fraction = ETA) -> Messages:
    """Every worker sends to the one `offset` away."""
    return {(worker, (worker + offset) % num_workers): eta * _weight(num_workers) for worker in range(num_workers)}


def matching(num_workers: int, offset: int, start: int, eta: Fraction = ETA) -> Messages:
    """Pairs of workers `offset` apart: each in turn, from `start` upwards, with its peer if both are still free."""
    free = set(range(num_workers))
    pairs = []
    for worker in chain(range(start, num_workers), range(start)):
        other = (worker + offset) % num_workers
        if worker in free and other in free:
            free -= {worker, other}
            pairs.append((worker, other))
    return _of_pairs(pairs, eta * _weight(num_workers))


def random_static(num_workers: int, degree: int, seed: int, *, symmetric: bool) -> Messages:
    """`static` with `degree` offsets drawn from `seed`."""
    drawn = _stream(seed, "equistatic").integers(1, num_workers, size=degree)
    return static(num_workers, drawn.tolist(), symmetric=symmetric)


def random_shift(num_workers: int, k: int, seed: int) -> Messages:
    """`shift` by an offset drawn for mixing step `k`."""
    return shift(num_workers, int(_stream(seed, "equidyn", k).integers(1, num_workers)))


def random_equidyn_matching(num_workers: int, k: int, seed: int) -> Messages:
    """`matching` with offset and start drawn for mixing step `k`."""
    draw = _stream(seed, "equidyn", k)
    return matching(num_workers, int(draw.integers(1, num_workers)), int(draw.integers(num_workers)))


def random_matching(num_workers: int, k: int, seed: int) -> Messages:
    """Pairs that average: entries i and i + n/2 of a permutation drawn for step `k`; of an odd number one is idle."""
    order = _stream(seed, "matching", k).permutation(num_workers).tolist()
    half = num_workers // 2
    return _of_pairs(zip(order[:half], order[half : 2 * half], strict=True), Fraction(1, 2))


def _stream(seed: int, purpose: str, k: int = 0) -> "Generator":
    from resync.base.streams import stream  # only here: it imports numpy, which plans of other topologies do not need

    return stream(seed, purpose, epoch=k)


def _weight(num_workers: int) -> Fraction:
    return Fraction(num_workers - 1, num_workers)


def _of_pairs(pairs: Iterable[tuple[int, int]], weight: Fraction) -> Messages:
    return {edge: weight for i, j in pairs for edge in ((i, j), (j, i))}

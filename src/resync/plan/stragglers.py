"""How long workers wait for each other when their steps do not take the same time.

A step takes the same seconds for every worker plus a delay drawn from an exponential distribution, independently for
every step and worker. With a shift, this is the law of step times of Lee et al. (2018, "Speeding up distributed
machine learning using codes") and Dutta et al. (2018, "Slow and stale gradients can win the race").
It has one parameter, the mean delay; it knows neither a worker that is always slow nor a bounded delay, so at large
numbers of workers, where the longest delay is ln n times the mean, it tends to overestimate.
"""

from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from resync.formulas.topology import out_peers, resolve

_REPLICA_WORKERS = 1024
_UNMEASURED, _MEASURED = 64, 192


@lru_cache(maxsize=4096)
def longest_delay(mean: float, workers: int, steps: int = 1) -> float:
    """Expected delay, in seconds, of the last of `workers` after `steps` steps without waiting; `mean` in seconds.

    The sum of so many delays has a gamma distribution F, and the largest of n independent ones the mean
    integral of 1 - F(x)^n. For one step it is mean * (1 + 1/2 + ... + 1/n).
    """
    if mean == 0:
        return 0.0
    from scipy import special  # only here: who plans without delays need not wait for the import

    if steps == 1:
        return mean * float(special.digamma(workers + 1) - special.digamma(1))
    x = np.linspace(0, special.gammainccinv(steps, 1e-13 / workers), 16_385)
    with np.errstate(divide="ignore"):  # log 0 where no worker can have finished
        late = -np.expm1(workers * np.log1p(-special.gammaincc(steps, x)))
    return mean * float(np.trapezoid(late, x))


@lru_cache(maxsize=1024)
def gossip_waiting(
    topology: str,
    workers: int,
    peers: int,
    *,
    steps: int,
    compute: float,
    delay: float,
    message: float,
    overlap: Literal["none", "bounded"],
) -> float:
    """Expected seconds that a worker waits for its peers between two mixes, beyond what messages take without delays.

    A worker computes `steps` steps of `compute` seconds plus a delay of mean `delay` each, and its messages take
    `message` seconds. Without overlap it sends after them and goes on when it has sent all and heard from all its
    in-peers: `steps * (compute + delay) + message` and the waiting. Bounded, it sends before them, and the longer one
    of steps and message takes its place.

    Who waited makes others wait: the times follow a recursion of maxima and sums (Baccelli et al. 1992,
    "Synchronization and Linearity") without a closed solution, which is simulated here with a fixed seed. Without
    overlap the result lies between the wait for the peers alone, as if all began together every time, and that for all
    workers (`longest_delay`); with two workers these are the same.

    Raises ValueError for a topology that does not exist for so many workers and peers.
    """
    if delay == 0 or workers == 1:
        return 0.0
    work = steps * (compute + delay)
    generator = np.random.default_rng(0)
    now = np.zeros((max(1, _REPLICA_WORKERS // workers), workers))
    ready, last, heard = (np.empty_like(now) for _ in range(3))
    began = 0.0
    for mix in range(_UNMEASURED + _MEASURED):
        if mix == _UNMEASURED:
            began = float(now.mean())
        generator.standard_gamma(steps, out=ready)
        ready *= delay
        ready += now
        ready += steps * compute
        sent = now if overlap == "bounded" else ready
        np.copyto(last, sent)
        for senders in _senders(topology, workers, mix, peers):
            np.maximum(last, np.take(sent, senders, axis=1, out=heard, mode="clip"), out=last)
        last += message
        np.maximum(ready, last, out=now)
    period = (float(now.mean()) - began) / _MEASURED
    return period - (max(work, message) if overlap == "bounded" else work + message)


def _senders(topology: str, workers: int, mix: int, peers: int) -> list[NDArray[np.intp]]:
    """Whom each worker hears in a mix, an array for each of its peers."""
    if not resolve(topology).regular:
        # Workers draw whom they send to; that each then hears from as many is an approximation.
        draws = np.random.default_rng(mix)
        orders = [draws.permutation(workers) for _ in range(peers)]
        return [np.roll(order, 1)[np.argsort(order)] for order in orders]
    # All even ranks use the same offsets, and all odd ones.
    first, second = (out_peers(topology, rank, workers, mix, peers) for rank in (0, 1))
    return [_inverse(workers, even, odd - 1) for even, odd in zip(first, second, strict=True)]


@lru_cache(maxsize=128)
def _inverse(workers: int, even: int, odd: int) -> NDArray[np.intp]:
    """Who sends to each worker, if even ranks send by one offset and odd ones by another."""
    ranks = np.arange(workers)
    senders = np.empty_like(ranks)
    senders[(ranks + np.where(ranks % 2, odd, even)) % workers] = ranks
    return senders

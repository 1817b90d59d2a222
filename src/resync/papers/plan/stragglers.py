"""The time that workers wait for each other when their step times vary.

A step takes the same time on every worker plus a delay drawn from an exponential distribution, independently for every
step and worker. This is the shifted exponential model of step times of Lee et al. (2018, "Speeding up distributed
machine learning using codes") and Dutta et al. (2018, "Slow and stale gradients can win the race").
It has one parameter, the mean delay. It covers neither workers that are always slow nor bounded delays, so it tends to
overestimate for large numbers of workers n, where the longest delay is ln n times the mean.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from resync.workers.formulas.topology import out_peers, resolve
from resync.workers.formulas.weighted_topology import WeightedTopology

_REPLICA_WORKERS = 1024
_UNMEASURED, _MEASURED = 64, 192


@lru_cache(maxsize=4096)
def longest_delay(mean: float, workers: int, steps: int = 1) -> float:
    """Expected delay, in seconds, of the slowest of `workers` after `steps` steps without waiting; `mean` in seconds.

    The sum of the delays has a gamma distribution F, and the mean of the largest of n independent sums is the
    integral of 1 - F(x)^n. For one step it is mean * (1 + 1/2 + ... + 1/n).
    """
    if mean == 0:
        return 0.0
    from scipy import special  # only here: the import is slow and not needed without delays

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
    """Expected seconds that a worker waits for its peers between two mixing steps, in addition to the message time.

    A worker computes `steps` steps of `compute` seconds plus a delay of mean `delay` each, and its messages take
    `message` seconds. Without overlap, it sends after these steps and continues when it has sent all messages and
    received those of its in-peers: the time between two mixing steps is `steps * (compute + delay) + message` plus the
    waiting. With bounded overlap, it sends before the steps, and the maximum of steps and message replaces the sum.

    Waiting propagates from worker to worker: the times follow a max-plus recursion (Baccelli et al. 1992,
    "Synchronization and Linearity") without a closed-form solution, which is simulated here with a fixed seed. Without
    overlap the result lies between the wait for the peers alone, if all started together every time, and that for all
    workers (`longest_delay`); with two workers these are equal.

    Raises ValueError for a topology that does not exist for this number of workers and peers.
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
    chosen = resolve(topology)
    if isinstance(chosen, WeightedTopology):
        return _pad(chosen.weights(workers, mix, peers, seed=0))
    if not chosen.regular:
        # Workers draw their out-peers; that each also has exactly `peers` in-peers is an approximation.
        draws = np.random.default_rng(mix)
        orders = [draws.permutation(workers) for _ in range(peers)]
        return [np.roll(order, 1)[np.argsort(order)] for order in orders]
    # All even ranks use the same offsets, and so do all odd ones.
    first, second = (out_peers(topology, rank, workers, mix, peers) for rank in (0, 1))
    return [_inverse(workers, even, odd - 1) for even, odd in zip(first, second, strict=True)]


def _pad(weights: Sequence[Mapping[int, Fraction]]) -> list[NDArray[np.intp]]:
    """The same from the messages of every worker; one that hears from fewer others than the rest hears from itself."""
    heard: list[list[int]] = [[] for _ in weights]
    for sender, receivers in enumerate(weights):
        for receiver in receivers:
            heard[receiver].append(sender)
    most = max(map(len, heard))
    padded = [senders + [worker] * (most - len(senders)) for worker, senders in enumerate(heard)]
    return list(np.array(padded, dtype=np.intp).T)


@lru_cache(maxsize=128)
def _inverse(workers: int, even: int, odd: int) -> NDArray[np.intp]:
    """The sender to each worker, if even ranks send by one offset and odd ranks by another."""
    ranks = np.arange(workers)
    senders = np.empty_like(ranks)
    senders[(ranks + np.where(ranks % 2, odd, even)) % workers] = ranks
    return senders

"""When messages arrive that may be late: drawn from the seed, so that training and plan know it without negotiation."""

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache


def lateness(seed: int, step: int, num_workers: int, bound: int) -> list[int]:
    """By how many steps the messages that each worker sends in `step` are late, uniform in 0..`bound`, by worker.

    A message that is not late arrives in the step after the one in which it was sent.
    """
    if bound == 0:
        return [0] * num_workers
    from resync.base.streams import stream  # only here: it imports numpy, which plans without late messages do not need

    drawn: list[int] = stream(seed, "lateness", epoch=step).integers(bound + 1, size=num_workers).tolist()
    return drawn


@lru_cache(maxsize=64)
def sending_intervals(seed: int, num_workers: int, bound: int, start: int, stop: int) -> Mapping[int, Fraction]:
    """The steps between two messages of a worker -> how many such messages it sends, averaged over the workers.

    Of the messages sent in the steps start..stop-1, each when the one before has arrived; none travels at the start.
    """
    if bound == 0:
        return {1: Fraction(stop - start)}
    free = [start] * num_workers
    counts: Counter[int] = Counter()
    for step in range(start, stop):
        late = lateness(seed, step, num_workers, bound)
        for worker in range(num_workers):
            if free[worker] <= step:
                free[worker] = step + 1 + late[worker]
                counts[1 + late[worker]] += 1
    return {steps: Fraction(count, num_workers) for steps, count in sorted(counts.items())}

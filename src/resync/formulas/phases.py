"""Phases of local steps in virtual time: which worker computes on what, and when its change reaches the server.

A worker copies the server's model, makes its steps, and hands its change to the server. Workers need not wait for each
other. Times are simulated: they follow from the seconds of a step, and never from a real clock. So the events are known
without any training, and are the same on any number of processes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple


class Phase(NamedTuple):
    """`steps` local steps of a worker on the batches `first`, `first` + 1, ... of the data stream `stream`."""

    worker: int
    stream: int
    first: int
    steps: int


class Event(NamedTuple):
    """What happens at `time`: phases start from the server's model, or end, and the server takes their changes.

    `version` counts the times that the server has taken changes: before a start, and with those of an end.
    """

    kind: Literal["start", "end"]
    phases: tuple[Phase, ...]
    time: float
    version: int


@dataclass(frozen=True)
class Phases:
    """The events of a training with a server (Liu et al. 2024, and their notebook).

    A worker that starts takes the stream on which the fewest phases have begun. The first that ends its phase opens a
    window of `max_wait` seconds; who ends inside it is waited for. Then all who are idle start together, and their
    clocks show the time of the last end: waiting in vain takes no time. With `max_wait` None the training is
    synchronous: all start together, and the server takes their changes together when the slowest has ended.

    Attributes:
        steps: local steps of a phase, by worker.
        seconds: how long a phase takes.
        choose: one of the streams, given in ascending order, that are used equally seldom.
    """

    steps: Sequence[int]
    seconds: Callable[[Phase], float]
    choose: Callable[[Sequence[int]], int]
    max_wait: float | None

    def events(self) -> Iterator[Event]:
        """All events in their order, without end."""
        workers = range(len(self.steps))
        begun, firsts = [0 for _ in workers], [0 for _ in workers]
        ends: dict[int, float] = {}
        phases: dict[int, Phase] = {}
        now, version = 0.0, 0
        while True:
            for worker in workers:
                if worker in phases:
                    continue
                stream = int(self.choose([each for each in workers if begun[each] == min(begun)]))
                phase = phases[worker] = Phase(worker, stream, firsts[stream], self.steps[worker])
                begun[stream] += 1
                firsts[stream] += phase.steps
                ends[worker] = now + self.seconds(phase)
                yield Event("start", (phase,), now, version)
            window = None
            while phases and (window is None or self.max_wait is None or min(ends.values()) - window <= self.max_wait):
                ended = min(ends, key=lambda worker: (ends[worker], worker))
                taken = list(phases) if self.max_wait is None else [ended]
                now = max(ends[worker] for worker in taken)
                window = now if window is None else window
                version += 1
                yield Event("end", tuple(phases[worker] for worker in taken), now, version)
                for worker in taken:
                    del phases[worker], ends[worker]

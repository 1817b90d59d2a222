"""Phases of local steps in virtual time: which worker computes on what, and when its change reaches the server.

A worker copies the server's model, makes its steps, and hands its change to the server. Workers need not wait for each
other. Times are simulated: they follow from the seconds of a step, and never from a real clock. So the events are known
without any training, and are the same on any number of processes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
class Timetable:
    """The events of a training with a server (Liu et al. 2024, and their notebook).

    A worker that starts takes the stream on which the fewest phases have begun. The first that ends its phase opens a
    window of `max_wait` seconds; who ends inside it is waited for. Then all who are idle start together, and their
    clocks show the time of the last end: waiting in vain takes no time. With `max_wait` None the training is
    synchronous: all start together, and the server takes their changes together when the slowest has ended.

    A phase does not end if its worker goes away meanwhile; when it is back it starts another one, or waits like others.

    Attributes:
        steps: local steps of a phase, by worker.
        seconds: (worker, first, steps) -> how long these steps take, and their messages; `first` counts its own steps.
        choose: one of the streams, given in ascending order, that are used equally seldom.
        max_wait: see above.
        back: (worker, start, end) -> when it is back if it is away within this time, else None.
    """

    steps: Sequence[int]
    seconds: Callable[[int, int, int], float]
    choose: Callable[[Sequence[int]], int]
    max_wait: float | None
    back: Callable[[int, float, float], float | None] = lambda worker, start, end: None

    def events(self) -> Iterator[Event]:
        workers = range(len(self.steps))
        begun, firsts, made = [0 for _ in workers], [0 for _ in workers], [0 for _ in workers]
        busy: dict[int, tuple[float, Phase | None]] = {}
        now, version = 0.0, 0
        while True:
            for worker in workers:
                if worker not in busy:
                    stream = int(self.choose([candidate for candidate in workers if begun[candidate] == min(begun)]))
                    phase = Phase(worker, stream, firsts[stream], self.steps[worker])
                    end = now + self.seconds(worker, made[worker], phase.steps)
                    back = self.back(worker, now, end)
                    busy[worker] = (end, phase) if back is None else (back, None)
                    if back is not None and self.back(worker, now, now) is not None:
                        continue  # away already
                    begun[stream] += 1
                    firsts[stream] += phase.steps
                    made[worker] += phase.steps
                    yield Event("start", (phase,), now, version)
            window = None
            while busy:
                taken = self._next(busy)
                if window is not None and self.max_wait is not None and busy[taken[0]][0] - window > self.max_wait:
                    break
                now = max(now, *(busy[worker][0] for worker in taken))
                ended = tuple(phase for _, phase in map(busy.pop, taken) if phase)
                if ended:
                    window = now if window is None else window
                    version += 1
                    yield Event("end", ended, now, version)
                if window is None or self.max_wait is None:
                    break

    def _next(self, busy: Mapping[int, tuple[float, Phase | None]]) -> list[int]:
        """Who ends next or is back: the first one, or where all wait for each other all who are not away until then."""
        first = min(busy, key=lambda worker: (busy[worker][0], worker))
        present = [worker for worker, (_, phase) in busy.items() if phase]
        if self.max_wait is not None or not present:
            return [first]
        last = max(busy[worker][0] for worker in present)
        return [worker for worker, (end, _) in busy.items() if end <= last]

"""Seconds spent in the phases of a run, on CPU and CUDA alike."""

from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from math import nan
from time import perf_counter
from typing import Any, NamedTuple

import torch

MARKS = 501
"""How many marks are kept: the newest."""


class Lap(NamedTuple):
    """What was between two marks: seconds, those of communication, and by how much each count has grown."""

    seconds: float
    communication: float
    counts: tuple[int, ...]


class _Mark(NamedTuple):
    when: Any
    communication: float
    counts: tuple[int, ...]

    def lap(self, end: "_Mark") -> Lap:
        grown = tuple(after - before for before, after in zip(self.counts, end.counts, strict=True))
        return Lap(_between(self.when, end.when), end.communication - self.communication, grown)


class _Pending(NamedTuple):
    """A measurement of a phase on a device, or a mark at its end, that has the counts."""

    phase: str
    start: "torch.cuda.Event"
    end: "torch.cuda.Event"
    counts: tuple[int, ...] = ()


class Clocks:
    """One stopwatch per phase (data, compute, communication, evaluation).

    On CUDA a phase is measured by events on the current stream, which are read only on demand, so that measuring
    never makes the host wait for the device.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._seconds: dict[str, float] = defaultdict(float)
        self._latest: dict[str, float] = {}
        self._pending: deque[_Pending] = deque()
        self._marks: deque[_Mark] = deque(maxlen=MARKS)

    @contextmanager
    def measure(self, phase: str) -> Iterator[None]:
        """Add the duration of the block to `phase`."""
        if self.device.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            yield
            end.record()
            self._pending.append(_Pending(phase, start, end))
            self._take(wait=False)
        else:
            began = perf_counter()
            yield
            self._add(phase, perf_counter() - began)

    def mark(self, *counts: int) -> None:
        """End a lap and begin the next one; the device goes on, as in a measurement."""
        if self.device.type == "cuda":
            now = torch.cuda.Event(enable_timing=True)
            now.record()
            self._pending.append(_Pending("", now, now, counts))
            self._take(wait=False)
        else:
            self._marks.append(_Mark(perf_counter(), self._seconds["communication"], counts))

    def laps(self) -> list[Lap]:
        """The laps between the newest marks, at most MARKS - 1; waits for the device as `seconds`."""
        self._take(wait=True)
        return [start.lap(end) for start, end in pairwise(self._marks)]

    def seconds(self, phase: str) -> float:
        """Total seconds of `phase` so far; waits for the device if measurements are pending."""
        self._take(wait=True)
        return self._seconds[phase]

    def latest(self, phase: str) -> float:
        """Seconds of the newest measurement of `phase`, NaN before the first; waits for the device as `seconds`."""
        self.seconds(phase)
        return self._latest.get(phase, nan)

    def state_dict(self) -> dict[str, float]:
        self.seconds("data")
        return dict(self._seconds)

    def load_state_dict(self, state: dict[str, float]) -> None:
        self._seconds = defaultdict(float, state)

    def _take(self, wait: bool) -> None:
        """Read the measurements that the device has ended; a loop that asks for none would keep all their events."""
        while self._pending and (wait or self._pending[0].end.query()):
            phase, start, end, counts = self._pending.popleft()
            end.synchronize()
            if phase:
                self._add(phase, _between(start, end))
            else:
                self._marks.append(_Mark(end, self._seconds["communication"], counts))

    def _add(self, phase: str, seconds: float) -> None:
        self._seconds[phase] += seconds
        self._latest[phase] = seconds


def _between(start: Any, end: Any) -> float:
    """Seconds between two times of the host, or two events of a device."""
    return float(end - start if isinstance(start, float) else start.elapsed_time(end) / 1000)

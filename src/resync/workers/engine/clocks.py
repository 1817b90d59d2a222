"""Seconds spent in the phases of a run, on CPU and CUDA alike."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from math import nan
from time import perf_counter

import torch


class _Seconds:
    """The block whose duration on the CPU is added to a phase."""

    __slots__ = "begin", "clocks", "phase"

    def __init__(self, clocks: "Clocks", phase: str) -> None:
        self.clocks, self.phase = clocks, phase

    def __enter__(self) -> None:
        self.begin = perf_counter()

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is None:
            self.clocks._add(self.phase, perf_counter() - self.begin)


class Clocks:
    """One stopwatch per phase (data, compute, communication, evaluation).

    On CUDA a phase is measured by events on the current stream, which are read only on demand, so that measuring
    never makes the host wait for the device.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._seconds: dict[str, float] = defaultdict(float)
        self._latest: dict[str, float] = {}
        self._pending: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []

    def measure(self, phase: str) -> AbstractContextManager[None]:
        """Add the duration of the block to `phase`."""
        return self._measure_events(phase) if self.device.type == "cuda" else _Seconds(self, phase)

    @contextmanager
    def _measure_events(self, phase: str) -> Iterator[None]:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        yield
        end.record()
        self._pending.append((phase, start, end))

    def seconds(self, phase: str) -> float:
        """Total seconds of `phase` so far; waits for the device if measurements are pending."""
        for name, start, end in self._pending:
            end.synchronize()
            self._add(name, start.elapsed_time(end) / 1000)
        self._pending.clear()
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

    def _add(self, phase: str, seconds: float) -> None:
        self._seconds[phase] += seconds
        self._latest[phase] = seconds

"""Two searches for the learning rate with which a method needs the fewest steps to a small error (Vogels et al. 2021).

A training at one learning rate is a sequence of errors at `measured_steps`, from which events follow; a search reads
the events of a training until one meets one of its rules, and then chooses the next learning rate. Both are those of
the paper's code, with what it does at the edges.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from math import isnan, log2
from typing import Literal, NamedTuple

TARGET = 1e-6
"""The error to reach."""

Trial = Callable[[float], Iterable[tuple[int, float]]]
"""A training at a learning rate: (step, error) at `measured_steps`, computed as they are asked for."""


class SearchEvent(NamedTuple):
    """What happens at a test point, with an error, or the mean of the last three of a plateau."""

    kind: Literal["value", "diverged", "rise", "plateau", "end"]
    step: int
    error: float


@cache
def measured_steps(most_steps: int) -> tuple[int, ...]:
    """The steps after which the error is looked at: 1, 2, ..., then ever further apart, up to the last one."""
    return tuple(dict.fromkeys(round(2 ** (log2(most_steps) * k / 999)) for k in range(1000)))


def events(errors: Iterable[tuple[int, float]], tolerance: float) -> Iterator[SearchEvent]:
    """The events of a training, with a plateau where three errors differ from their mean by less than `tolerance`."""
    first: float | None = None
    last: list[float] = []
    step = 0
    for step, error in errors:
        yield SearchEvent("value", step, error)
        first = error if first is None else first
        if isnan(error) or error > first:
            yield SearchEvent("diverged", step, error)
            return
        if last and error > last[-1]:
            yield SearchEvent("rise", step, error)
        last = [*last[-2:], error]
        mean = sum(last) / 3
        if len(last) == 3 and all(abs(value - mean) < tolerance for value in last):
            yield SearchEvent("plateau", step, mean)
    yield SearchEvent("end", step, last[-1])


class Search:
    """A bisection on the learning rate, of at most `most_trials` trainings, and what it has found.

    Attributes:
        steps, lr: the fewest steps, and the learning rate that goes with them; None if no training reached the target.
        fastest_rate: the learning rate of the training that took them.
        trials: trainings so far.
        exhausted: whether the search would have gone on.
    """

    tolerance = TARGET / 10
    resolution = 1e-4

    def __init__(self, start: float, most_trials: int) -> None:
        """`start` is half of the largest learning rate."""
        self.most_trials = most_trials
        self.steps: int | None = None
        self.lr: float | None = None
        self.fastest_rate: float | None = None
        self.trials, self.exhausted = 0, False
        self.low: float | None = None
        self.high = self.rate = 2 * start

    def run(self, trial: Trial) -> None:
        while self.low is None or self.high - self.low > self.resolution:
            if self.trials == self.most_trials:
                self.exhausted = True
                return
            self.trials += 1
            self._choose()
            if any(map(self._decides, events(trial(self.rate), self.tolerance))) and self._is_settled:
                return

    _is_settled = False

    def _choose(self) -> None:
        raise NotImplementedError

    def _decides(self, event: SearchEvent) -> bool:
        """Whether the event ends its training, after which the bounds are others."""
        raise NotImplementedError

    def _is_too_large(self, event: SearchEvent) -> bool:
        return event.kind == "diverged" or (event.kind == "rise" and event.error > TARGET)

    def _below(self) -> None:
        self.high = self.rate if self.low is None else max(self.low, self.rate)

    def _above(self) -> None:
        self.low = min(self.rate, self.high)

    def _is_late(self, event: SearchEvent) -> bool:
        return self.steps is not None and event.kind == "value" and event.step > 10 * self.steps

    def _improves(self, event: SearchEvent) -> bool:
        return self.steps is None or event.step < self.steps


class Fastest(Search):
    """The learning rate with which the error first falls below the target.

    A training that improves is halved before it is recorded: `lr` is half of the learning rate that took `steps`.
    """

    def _choose(self) -> None:
        if self.low is not None:
            self.rate = (self.low + self.high) / 2

    def _decides(self, event: SearchEvent) -> bool:
        if self._is_too_large(event):
            self._below()
            self.rate /= 2
        elif event.error < TARGET:
            if self._improves(event):
                self.steps, self.fastest_rate = event.step, self.rate
                self.lr = self.rate = self.rate / 2
            else:
                self.low, self.high = min(self.rate, self.high), min(4 * self.rate, self.high)
        elif event.kind == "plateau":
            if event.error > TARGET:
                self._below()
            self.rate /= 2
        elif event.kind == "end" or self._is_late(event):
            self._above()
        else:
            return False
        return True


class Settled(Search):
    """The largest learning rate with which the error settles below the target, and the step at which it is seen to."""

    tolerance = TARGET / 100
    resolution = 1e-6

    def _choose(self) -> None:
        self.rate = self.high / 2 if self.low is None else (self.low + self.high) / 2

    def _decides(self, event: SearchEvent) -> bool:
        if self._is_too_large(event):
            self._below()
        elif event.kind == "plateau":
            if event.error < TARGET and self._improves(event):
                self.steps, self.lr, self.fastest_rate = event.step, self.rate, self.rate
            self._is_settled = TARGET / 1.1 < event.error < TARGET
            if event.error > TARGET:
                self._below()
            else:
                self._above()
        elif event.kind == "end" or self._is_late(event):
            self._above()
        else:
            return False
        return True


SEARCHES = {"fastest": Fastest, "settled": Settled}

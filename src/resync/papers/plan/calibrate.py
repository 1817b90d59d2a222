"""Calibration on two measured times, which separates computation from communication (Gu et al. 2024, table 4).

Runs that differ only in how much they communicate take compute + load * cost. If one run has a round in every step and
the other in every H-th step, the communication of the first is H / (H - 1) times the difference of the two times.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

from resync.base.errors import UserError


@dataclass(frozen=True)
class Timed:
    """A run with a known time.

    Attributes:
        name: the run's name in error messages.
        load: amount of communication, in a unit with a fixed cost in time, such as rounds.
        time: duration; the same unit for all timings of a calibration, such as hours.
        certainty: 0 for the most certain times, higher for less certain ones.
        rounding: half a unit of the last printed digit of `time`.
    """

    name: str
    load: float
    time: float
    certainty: int = 0
    rounding: float = 0.0


@dataclass(frozen=True)
class Calibration:
    """The model that two timings give for all runs with the same computation. Times have the unit of the timings.

    Raises ValueError for equal loads, and for times that would need a negative cost.
    """

    more: Timed
    less: Timed

    def __post_init__(self) -> None:
        pair = f"{self.more.name} ({self.more.time:g}) and {self.less.name} ({self.less.time:g})"
        if self.more.load <= self.less.load:
            raise UserError(f"{pair}: found loads {self.more.load:g} and {self.less.load:g}, allowed: more, then less")
        if self.cost < 0 or self.compute < 0:
            what = "communication" if self.cost < 0 else "computing"
            raise UserError(f"{pair}: according to these times, {what} would take a negative time")

    @property
    def cost(self) -> float:
        return (self.more.time - self.less.time) / (self.more.load - self.less.load)

    @property
    def compute(self) -> float:
        return self.less.time - self.less.load * self.cost

    @property
    def certainty(self) -> tuple[int, int]:
        """Certainty of the less certain timing, then of the other one: lower is more certain."""
        return _certainty(self.more, self.less)

    def communication(self, load: float) -> float:
        return load * self.cost

    def total(self, load: float) -> float:
        return self.compute + self.communication(load)

    def communication_rounding(self, load: float) -> float:
        """Largest error of `communication` from the rounding of the two printed times."""
        return load * (self.more.rounding + self.less.rounding) / (self.more.load - self.less.load)

    def total_rounding(self, load: float) -> float:
        """Largest error of `total` from the rounding of the two printed times."""
        share = (load - self.less.load) / (self.more.load - self.less.load)
        return abs(share) * self.more.rounding + abs(1 - share) * self.less.rounding


def calibrate(timings: Sequence[Timed]) -> Calibration:
    """Calibrate on the most certain pair; of equally certain pairs, on that with the largest difference in load.

    Raises ValueError if no two timings differ in load, or if the chosen pair contradicts the model.
    """
    pairs = [pair for pair in permutations(timings, 2) if pair[0].load > pair[1].load]
    if not pairs:
        names = ", ".join(timing.name for timing in timings) or "none"
        raise UserError(f"a calibration needs two known times of runs that communicate differently, found {names}")
    return Calibration(*min(pairs, key=lambda pair: (_certainty(*pair), pair[1].load - pair[0].load)))


def _certainty(first: Timed, second: Timed) -> tuple[int, int]:
    better, worse = sorted((first.certainty, second.certainty))
    return worse, better

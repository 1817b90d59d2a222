"""Two measured times tell computing from communication, and so predict all others (Gu et al. 2024, table 4).

Runs that differ only in how much they communicate take compute + load * cost. Where the loads are a round in every step
and in every H-th, the communication of the first is H / (H - 1) times the difference of the two times.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations


@dataclass(frozen=True)
class Timing:
    """A run whose time is known.

    Attributes:
        name: what errors call the run.
        load: what it communicates, in any unit of which each costs the same time, such as rounds.
        time: how long it took; all of a calibration in one unit, such as hours.
        certainty: 0 for the most certain times, more for less certain ones.
        rounding: half a unit of the last digit that `time` was printed with.
    """

    name: str
    load: float
    time: float
    certainty: int = 0
    rounding: float = 0.0


@dataclass(frozen=True)
class Calibration:
    """What two timings say of all runs that compute the same. Times have the unit of the timings.

    Raises ValueError for equal loads, and for times that no positive cost explains.
    """

    more: Timing
    less: Timing

    def __post_init__(self) -> None:
        """Refuse pairs of which nothing follows."""
        pair = f"{self.more.name} ({self.more.time:g}) and {self.less.name} ({self.less.time:g})"
        if self.more.load <= self.less.load:
            raise ValueError(f"{pair}: found loads {self.more.load:g} and {self.less.load:g}, allowed: more, then less")
        if self.cost < 0 or self.compute < 0:
            what = "communication" if self.cost < 0 else "computing"
            raise ValueError(f"{pair}: from these times, {what} would take less than no time")

    @property
    def cost(self) -> float:
        """Time of a unit of load."""
        return (self.more.time - self.less.time) / (self.more.load - self.less.load)

    @property
    def compute(self) -> float:
        """Time without any communication."""
        return self.less.time - self.less.load * self.cost

    @property
    def certainty(self) -> tuple[int, int]:
        """Of the less certain timing, then of the other one: less is more certain."""
        return _certainty(self.more, self.less)

    def communication(self, load: float) -> float:
        """Time in communication of a run with this load."""
        return load * self.cost

    def total(self, load: float) -> float:
        """Time of a run with this load."""
        return self.compute + self.communication(load)

    def communication_rounding(self, load: float) -> float:
        """How far `communication` may be off because both times were rounded when they were printed."""
        return load * (self.more.rounding + self.less.rounding) / (self.more.load - self.less.load)

    def total_rounding(self, load: float) -> float:
        """The same for `total`."""
        share = (load - self.less.load) / (self.more.load - self.less.load)
        return abs(share) * self.more.rounding + abs(1 - share) * self.less.rounding


def calibrate(timings: Sequence[Timing]) -> Calibration:
    """Calibrate on the most certain pair, and of equally certain pairs on that with the most different loads.

    Raises ValueError if no two timings differ in load, or if the chosen pair contradicts the model.
    """
    pairs = [pair for pair in permutations(timings, 2) if pair[0].load > pair[1].load]
    if not pairs:
        names = ", ".join(timing.name for timing in timings) or "none"
        raise ValueError(f"a calibration needs two known times of runs that communicate differently, found {names}")
    return Calibration(*min(pairs, key=lambda pair: (_certainty(*pair), pair[1].load - pair[0].load)))


def _certainty(first: Timing, second: Timing) -> tuple[int, int]:
    """Of the less certain timing, then of the other one."""
    better, worse = sorted((first.certainty, second.certainty))
    return worse, better

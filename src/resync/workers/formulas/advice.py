"""What longer periods, or messages to one peer, save: from the times of a step's computing and of its exchange."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, nan

from resync.base.text_tables import aligned


@dataclass(frozen=True)
class Advice:
    """How much of the time workers compute, by the number H of local steps between averages, and with gossip.

    The printed form is a table. Nothing here is about accuracy.

    Attributes:
        workers: number of workers, at least 2.
        computing: seconds of a step without its exchange.
        average: seconds of an average of all parameters over all workers.
        message: seconds of a message of all parameters to one peer and of one from another, at the same time.
        modelled: which of the two follows from the other, by `on_a_ring`; None: neither.
    """

    workers: int
    computing: float
    average: float
    message: float
    modelled: str | None = None

    @classmethod
    def on_a_ring(cls, workers: int, computing: float, average: float = nan, message: float = nan) -> "Advice":
        """With what is not given, NaN, from the other one: an average on a ring takes as 2 (n - 1)/n messages."""
        messages = 2 * (workers - 1) / workers
        if average != average:
            return cls(workers, computing, messages * message, message, "average")
        if message != message:
            return cls(workers, computing, average, average / messages, "message")
        return cls(workers, computing, average, message)

    def step(self, h: int) -> float:
        """Seconds of a step, as a mean over a round of `h` local steps and an average."""
        return self.computing + self.average / h

    def efficiency(self, h: int) -> float:
        """H c / (H c + x) with c = `computing` and x = `average`: the part of the time in which workers compute."""
        return self.computing / self.step(h)

    @property
    def gossip_efficiency(self) -> float:
        """The same with a message in every step in place of averages."""
        return self.computing / (self.computing + self.message)

    def period(self, efficiency: float = 0.95) -> int:
        """The smallest H with this efficiency, below 1."""
        return max(1, ceil(efficiency / (1 - efficiency) * self.average / self.computing))

    def __str__(self) -> str:
        first = (
            f"{self.workers} workers: {_seconds(self.computing)} of computing in a step, {_seconds(self.average)} for "
            f"an average of all parameters{self._how('average')}, {_seconds(self.message)} for a message"
            f"{self._how('message')}"
        )
        rows = [(f"average, H = {h}", self.step(h), self.efficiency(h)) for h in self._periods()]
        rows.append(("gossip, one peer", self.computing + self.message, self.gossip_efficiency))
        lines = [("", "step", "computing"), *((name, _seconds(step), f"{part:.0%}") for name, step, part in rows)]
        return "\n".join([first, *aligned(lines), f"95 % computing from H = {self.period()} on"])

    def _periods(self) -> Iterator[int]:
        """1, 2, 4, ... up to the first that reaches 95 %."""
        powers = (1 << exponent for exponent in range(64))
        for h in powers:
            yield h
            if h >= self.period():
                return

    def _how(self, name: str) -> str:
        return " (modelled)" if self.modelled == name else ""


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{1000 * value:.3g} ms"

"""Which samples a member of a changing group takes: arithmetic that all members do alike, and no service."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from resync.errors import UserError
from resync.streams import stream


class SharedSamples:
    """The order of a data set, of which the members of a round take blocks in turn.

    The samples are a line of shuffled epochs. In the j-th batch of a round, member i of n takes the i-th of n blocks of
    `batch_size`; the next round begins after the last one. Blocks of a member that is lost come first in the next
    round, so that no sample of an epoch is left out, and none but these is seen twice. With `constant`, batches of all
    members together have `batch_size` samples, however many members there are; otherwise each member's has.

        samples = resync.SharedSamples(len(data), batch_size=32)
        sync = resync.attach(..., elastic=resync.Elastic(..., samples=samples))
        while sync.steps < total_steps:
            x, y = data[samples.next()]

    Attributes: `given` (samples that the members were given so far), `returned` (of these, those that lost members had
    and others were given again).
    """

    def __init__(self, size: int, batch_size: int, *, seed: int = 0, constant: bool = False) -> None:
        for name, found in (("size", size), ("batch_size", batch_size)):
            if found < 1:
                raise UserError(f"{name}: found {found}, allowed: integer >= 1")
        self.size, self.batch_size, self.seed, self.constant = size, batch_size, seed, constant
        self.given = self.returned = 0
        self._first = 0  # the first place of the line that nobody has had
        self._again: list[tuple[int, int]] = []  # earlier places to give again
        self._takers: list[str] = []
        self._place: int | None = 0
        self._taken = self._per_round = 0
        self._orders: dict[int, np.ndarray] = {}

    def next(self) -> np.ndarray:
        """The indices of this member's next batch, [batch_size], or its part of it with `constant`."""
        if self._place is None:
            raise RuntimeError("samples: this worker still has a gradient that the others wait for")
        self._taken += 1
        return self._batch(self._taken - 1, self._place)

    def next_of_all(self) -> dict[str, np.ndarray]:
        """The next batch of every member, by its name: for a process that stands for all of them."""
        self._taken += 1
        return {member: self._batch(self._taken - 1, place) for place, member in enumerate(self._takers)}

    def _batch(self, number: int, place: int) -> np.ndarray:
        return np.concatenate([self._indices(*part) for part in self._places(*self._block(number, place))])

    def epoch(self) -> float:
        """Epochs that the members were given so far."""
        return self._first / self.size

    def begin_round(self, members: Sequence[str], member: str, idle: Sequence[str] = ()) -> None:
        """Share the next round among `members`, but for those that bring a gradient along."""
        self._takers = [each for each in members if each not in idle]
        self._place = self._takers.index(member) if member in self._takers else None
        self._taken = 0 if self._place is not None else self._per_round

    def end_round(self, survivors: Sequence[str]) -> None:
        """Go on behind the samples of this round, and give those of lost members to others."""
        lost = [place for place, each in enumerate(self._takers) if each not in survivors]
        blocks = [self._block(batch, place) for batch in range(self._taken) for place in lost]
        again = [part for block in blocks for part in self._places(*block)]
        number = self._block(self._taken, 0)[0]
        waiting = sum(end - begin for begin, end in self._again)
        rest = self._places(number, waiting) if number < waiting else []
        self._first += max(0, number - waiting)
        self._again = again + rest
        self.given += number
        self.returned += sum(end - begin for begin, end in again)
        self._per_round = self._taken

    def state_dict(self) -> dict[str, Any]:
        names = ("given", "returned", "_first", "_again", "_per_round", "_takers", "_taken")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def _block(self, batch: int, place: int) -> tuple[int, int]:
        """Where in this round a member's batch begins and ends."""
        number = max(1, len(self._takers))
        total = self.batch_size if self.constant else number * self.batch_size
        return batch * total + total * place // number, batch * total + total * (place + 1) // number

    def _places(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Parts of the line for a part of this round, which begins with what is given again."""
        found, before = [], 0
        for first, last in self._again:
            part = first + max(0, begin - before), min(last, first + end - before)
            before += last - first
            if part[0] < part[1]:
                found.append(part)
        if end > before:
            found.append((self._first + max(begin, before) - before, self._first + end - before))
        return found

    def _indices(self, begin: int, end: int) -> np.ndarray:
        """The samples at these places of the line."""
        epochs = range(begin // self.size, (end - 1) // self.size + 1)
        for epoch in epochs:
            if epoch not in self._orders:
                # What is given again is of this epoch or of the one before.
                self._orders = {each: order for each, order in self._orders.items() if each >= epoch - 1}
                self._orders[epoch] = stream(self.seed, "shared order", epoch=epoch).permutation(self.size)
        parts = [self._orders[epoch][max(0, begin - epoch * self.size) : end - epoch * self.size] for epoch in epochs]
        return np.concatenate(parts)

"""Options of stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from resync.optim.options._decay import DecayOptions
from resync.settings.base import Check


class SGD(DecayOptions):
    """Stochastic gradient descent with heavy-ball or Nesterov momentum and L2 weight decay (torch.optim.SGD)."""

    name: Literal["sgd"] = Field(default="sgd", init=False)
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(default=0.0, description="momentum factor")
    nesterov: bool = Field(default=False, description="Nesterov's form; needs momentum > 0")

    def checks(self) -> Iterator[Check]:
        """Require momentum for Nesterov's form."""
        yield from super().checks()
        if self.nesterov and not self.momentum:
            yield ("nesterov",), "found true without momentum, allowed: with momentum > 0"

    @property
    def state_vectors(self) -> int:
        """The momentum buffer, if there is momentum."""
        return int(self.momentum > 0)

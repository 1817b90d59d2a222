"""Options of Stochastic Gradient Push."""

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from resync.config.parts import Traffic
from resync.settings.base import Several
from resync.sync.options._gossip import PushSumOptions


class SGP(PushSumOptions):
    """Stochastic Gradient Push, synchronous push-sum gossip after every step (Assran et al. 2019, Algorithm 1)."""

    label = "SGP"
    name: Literal["sgp"] = Field(default="sgp", init=False)
    average_state: Annotated[
        Several[str],
        Field(
            description="fields of the optimizer's state that travel with the parameters and are mixed like them, e.g. "
            "momentum_buffer; each is one more message per peer; all others stay with their worker"
        ),
    ] = ()

    @property
    def traffic(self) -> Traffic:
        """A weighted mixing step after every step, of the parameters and the state that travels with them."""
        return replace(super().traffic, vectors=1 + len(self.average_state))

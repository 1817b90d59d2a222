"""Options of Local SGD and Local AdamW."""

from typing import Annotated, Literal

from pydantic import Field

from resync.settings.base import Several
from resync.sync.options._rounds import RoundsOptions

StateNames = Annotated[
    Several[str],
    Field(
        description="fields of the optimizer's state to average too, e.g. exp_avg; all others stay with their worker"
    ),
]


class Local(RoundsOptions):
    """Local SGD / Local AdamW, parameters averaged after every round of H local steps (Gu et al. 2024, Algorithm 2)."""

    name: Literal["local"] = Field(default="local", init=False)
    average_state: StateNames = ()

    def vectors_per_round(self, state_vectors: int) -> int:
        """The parameters, and the state that is averaged with them."""
        return 1 + len(self.average_state)

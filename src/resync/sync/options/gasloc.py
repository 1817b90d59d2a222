"""Options of GASLoC."""

from typing import Annotated, Literal

from pydantic import Field

from resync.sync.options._pairs import PairOptions


class GASLoC(PairOptions):
    """Nesterov's outer step with gossip between its two halves (arXiv 2606.11081, as quoted by others)."""

    label = "GASLoC"
    name: Literal["gasloc"] = Field(default="gasloc", init=False)
    mixing: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.5, description="step along the graph's Laplacian, alpha; 0.5: the average of a pair"
    )
    momentum_of: Literal["mixed", "own"] = Field(
        default="mixed",
        description="what the momentum extrapolates: the vectors after mixing, with which the complete graph is "
        "DiLoCo, or the workers' own before it, as the rule is written where it is quoted",
    )

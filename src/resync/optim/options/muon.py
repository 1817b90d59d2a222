"""Options of Muon."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from resync.optim.options._decay import DecayOptions
from resync.settings.base import PositiveNumber

Factor = Annotated[float, Field(ge=0, lt=1)]


class Muon(DecayOptions):
    """Orthogonalised momentum for the matrices of hidden layers, AdamW for all other parameters (Jordan et al. 2024).

    Other parameters are embeddings, the output layer, convolutions, biases and normalisation.
    """

    by_shape: ClassVar[bool] = True
    name: Literal["muon"] = Field(default="muon", init=False)
    variant: Literal["muloco", "modded_nanogpt", "torch"] = Field(
        default="muloco",
        description="whose constants and form of momentum: those of MuLoCo's code, of the code of modded-nanogpt, or "
        "of torch.optim.Muon",
    )
    momentum: Factor = Field(default=0.95, description="momentum of the matrices")
    precision: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="number format of the Newton-Schulz iteration; the originals use bfloat16, which is faster on GPUs "
        "and differs by about 1 %",
    )
    beta1: Factor = Field(default=0.9, description="decay rate of AdamW's first moment")
    beta2: Factor = Field(default=0.95, description="decay rate of AdamW's second moment")
    eps: PositiveNumber = Field(default=1e-8, description="number that AdamW adds to the square root of the moment")
    others_lr: PositiveNumber = Field(
        default=1.0, description="learning rate of AdamW, in units of that of the schedule, which the matrices have"
    )

    @property
    def state_vectors(self) -> int:
        """Two: momentum or first moment, and second moment, which is 0 for matrices."""
        return 2

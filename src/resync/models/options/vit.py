"""Options of SimpleViT."""

from typing import Annotated, Literal

from pydantic import Field

from resync.config.parts import ModelOptions
from resync.settings.base import PositiveInt


class ViT(ModelOptions):
    """SimpleViT, a vision transformer with fixed 2-d sine-cosine positions and average pooling (Beyer et al. 2022).

    The mean of the tokens is normalised, not each token. The defaults give the QSR paper's ViT-B/16.
    """

    batch_norm = False
    form = "samples"
    name: Literal["vit"] = Field(default="vit", init=False)
    patch: PositiveInt = Field(default=16, description="side of a patch in pixels; divides the image's side")
    dim: Annotated[int, Field(ge=4, multiple_of=4)] = Field(default=768, description="model dimension")
    depth: PositiveInt = Field(default=12, description="number of blocks")
    heads: PositiveInt = Field(default=12, description="attention heads; divides dim")
    mlp_dim: PositiveInt = Field(default=3072, description="hidden width of a block's MLP")

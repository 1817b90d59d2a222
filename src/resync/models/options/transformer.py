"""Options of the Transformer for translation."""

from typing import Annotated, Literal

from pydantic import Field

from resync.config.parts import ModelOptions
from resync.settings.base import PositiveInt


class Transformer(ModelOptions):
    """Transformer for translation with post-norm residual connections (Vaswani et al. 2017).

    Source, target and output share one embedding. The defaults give the base model; dim 1024, ffn_dim 4096, heads 16
    and dropout 0.3 give the big one.
    """

    task = "translation"
    batch_norm = False
    name: Literal["transformer"] = Field(default="transformer", init=False)
    dim: Annotated[int, Field(ge=2, multiple_of=2)] = Field(default=512, description="model dimension")
    ffn_dim: PositiveInt = Field(default=2048, description="hidden width of the feed-forward networks")
    heads: PositiveInt = Field(default=8, description="attention heads; divides dim")
    encoder_layers: PositiveInt = Field(default=6, description="layers of the encoder")
    decoder_layers: PositiveInt = Field(default=6, description="layers of the decoder")
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.1,
        description="dropout probability on the embeddings and on the output of every sublayer",
    )

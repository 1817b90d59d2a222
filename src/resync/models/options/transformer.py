"""Options of the Transformer for translation."""

from typing import Annotated, Literal

from pydantic import Field

from resync.config.parts import ModelOptions
from resync.settings.base import PositiveInt


class Transformer(ModelOptions):
    """Transformer for translation with normalisation after every residual sum (Vaswani et al. 2017).

    One embedding for source, target and output. The base model by its defaults, the big one with dim 1024,
    ffn_dim 4096, heads 16, dropout 0.3.
    """

    task = "translation"
    batch_norm = False
    name: Literal["transformer"] = Field(default="transformer", init=False)
    dim: Annotated[int, Field(ge=2, multiple_of=2)] = Field(default=512, description="width of a token")
    ffn_dim: PositiveInt = Field(default=2048, description="hidden width of a layer's feed-forward net")
    heads: PositiveInt = Field(default=8, description="attention heads; divides dim")
    encoder_layers: PositiveInt = Field(default=6, description="layers of the encoder")
    decoder_layers: PositiveInt = Field(default=6, description="layers of the decoder")
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.1,
        description="share of the values that are dropped of the embeddings and of what every part of a layer adds",
    )

"""Options of GPT."""

from typing import Annotated, Literal

from pydantic import Field

from resync.config.parts import Form, ModelOptions
from resync.settings.base import PositiveInt


class GPT(ModelOptions):
    """GPT, a Transformer that predicts the next token, in the shape of nanoGPT (Radford et al. 2019).

    Pre-norm, learned positions, exact GELU, output tied to the embedding. The defaults give the 124M model without
    biases.
    """

    task = "language_model"
    batch_norm = False
    form = "samples"
    name: Literal["gpt"] = Field(default="gpt", init=False)
    layers: PositiveInt = Field(default=12, description="number of blocks")
    heads: PositiveInt = Field(default=12, description="attention heads; divides dim")
    dim: PositiveInt = Field(
        default=768, description="model dimension; the hidden width of a block's MLP is four times"
    )
    bias: bool = Field(default=False, description="whether linear layers and layer norms have a bias, as GPT-2's do")
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0,
        description="dropout probability on the embeddings, the attention weights and the output of every sublayer",
    )

    @property
    def stacked_form(self) -> Form | None:
        """None with dropout, whose draws are those of one worker after another."""
        return None if self.dropout else self.form

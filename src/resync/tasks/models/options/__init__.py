"""The options of every model, without torch. See `resync.base.settings.options`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from resync.base.settings.base import PositiveInt, PositiveNumber, Several
from resync.tasks.models.options.base import ModelOptions
from resync.workers.engine.settings import Form


class Linear(ModelOptions):
    """Linear classifier on the flattened input, which starts at zero.

    With two classes it is logistic regression at twice the learning rate: the two logits move apart by equal steps.
    """

    batch_norm = False
    form = "samples"
    name: Literal["linear"] = Field(default="linear", init=False)


class MLP(ModelOptions):
    """Multi-layer perceptron on the flattened input."""

    batch_norm = False
    form = "samples"
    name: Literal["mlp"] = Field(default="mlp", init=False)
    hidden: Several[PositiveInt] = Field(default=(64,), min_length=1, description="width of every hidden layer")
    activation: Literal["relu", "silu"] = Field(
        default="relu", description="activation after every hidden layer; silu is smooth"
    )


class CNN(ModelOptions):
    """Small convolutional network of 3x3 convolutions with normalisation and ReLU, and global average pooling."""

    form = "channels"
    name: Literal["cnn"] = Field(default="cnn", init=False)
    widths: Several[PositiveInt] = Field(
        default=(8, 16),
        min_length=1,
        description="channels of every convolution; the stride is 2 from the second one on",
    )
    norm: Literal["group", "batch", "none"] = Field(
        default="group", description="normalisation after every convolution; batch needs evaluation.bn_batches"
    )
    groups: PositiveInt = Field(default=4, description="groups of the GroupNorm; divides every width")

    @property
    def has_batch_norm(self) -> bool:
        return self.norm == "batch"


class MnistCNN(ModelOptions):
    """Four 3x3 convolutions with BatchNorm and one hidden linear layer.

    The network of the DDP training tricks guide for MNIST.
    """

    batch_norm = True
    form = "channels"
    name: Literal["mnist_cnn"] = Field(default="mnist_cnn", init=False)


class CifarResNet(ModelOptions):
    """ResNet for 32-pixel images, with 6n+2 layers and parameter-free shortcuts.

    Option A of He et al. 2016; includes the Local SGD paper's ResNet-56.
    """

    form = "channels"
    name: Literal["cifar_resnet"] = Field(default="cifar_resnet", init=False)
    depth: Literal[8, 14, 20, 32, 44, 56, 110, 1202] = Field(description="number of layers")
    width: PositiveInt = Field(
        default=16, description="channels of the first stage; they double in the second and in the third"
    )
    norm: Literal["batch", "group"] = Field(
        default="batch", description="normalisation after every convolution; batch needs evaluation.bn_batches"
    )
    groups: PositiveInt = Field(default=8, description="groups of the GroupNorm; divides the width")
    activation: Literal["relu", "silu"] = Field(
        default="relu", description="activation; the Local SGD paper's networks with GroupNorm use silu"
    )

    @property
    def has_batch_norm(self) -> bool:
        return self.norm == "batch"


class ResNet(ModelOptions):
    """ResNet of torchvision with its default initialisation.

    He et al. 2016, in the variant with the stride in the 3x3 convolution.
    """

    batch_norm = True
    form = "channels"
    name: Literal["resnet"] = Field(default="resnet", init=False)
    depth: Literal[18, 34, 50, 101, 152] = Field(description="number of layers")
    stem: Literal["imagenet", "cifar"] = Field(
        default="imagenet",
        description="first layer: imagenet is a 7x7 convolution and a pooling that reduce the side by a factor of 4, "
        "cifar a 3x3 convolution that keeps the resolution of 32-pixel images",
    )
    zero_last_gamma: bool = Field(
        default=False,
        description="start the last BatchNorm scale of every residual block at zero (Goyal et al. 2017; SGP's setting)",
    )
    fc_std: PositiveNumber | None = Field(
        default=None,
        description="standard deviation of the last layer's initial weights (0.01 in Goyal et al. 2017 and SGP); "
        "null: torchvision's uniform initialisation",
    )


class VGG(ModelOptions):
    """VGG for images of at least 32 pixels, without normalisation, with SiLU, average pooling and one linear layer.

    Includes the Local SGD paper's VGG-16.
    """

    batch_norm = False
    form = "channels"
    name: Literal["vgg"] = Field(default="vgg", init=False)
    depth: Literal[11, 13, 16, 19] = Field(
        description="number of layers, as in the model names of Simonyan and Zisserman 2015"
    )


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


class GPT(ModelOptions):
    """GPT, a Transformer that predicts the next token, in the shape of nanoGPT (Radford et al. 2019).

    Pre-norm, learned positions, exact GELU, no biases, output tied to the embedding. The defaults give the 124M model.
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
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0,
        description="dropout probability on the embeddings, the attention weights and the output of every sublayer",
    )

    @property
    def stacked_form(self) -> Form | None:
        return None if self.dropout else self.form  # whose draws are those of one worker after another


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


class Point(ModelOptions):
    """A point of the space on which a function is defined: no model, but what is trained on quadratic functions."""

    task = "quadratics"
    batch_norm = False
    name: Literal["point"] = Field(default="point", init=False)

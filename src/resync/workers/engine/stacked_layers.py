"""Layers of k models at once, each worker's samples with its own parameters: what the engine `stacked` computes with.

There are two forms in which the samples of k workers pass through a model whose code knows of one worker only:

    channels    [b, k * c, ...]    the channels of the workers side by side, for networks of convolutions
    samples     [k * b, ...]       the samples of one worker after those of another, for all others

What a model computes without parameters (activations, pooling, attention, sums) then needs no change, as long as it
mixes neither channels nor samples itself. A convolution is one grouped convolution, with a group per worker, a linear
layer one batched matrix product, GroupNorm and BatchNorm are those of k * c channels.

On the CPU every layer gives a worker the same bits for any number k >= 2 of workers. A single worker is computed beside
a copy of itself, because torch has other kernels for one group. The grouped convolutions are also what makes stacking
fast there: oneDNN computes 8 groups of 8 channels twice as fast as 8 convolutions of 8 channels.
"""

import copy
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from resync.base.errors import UserError
from resync.workers.engine.embeddings import LearnedPositions, TiedEmbedding
from resync.workers.engine.settings import Form

WITHOUT_PARAMETERS = (
    nn.Identity, nn.Flatten, nn.ReLU, nn.SiLU, nn.GELU, nn.Tanh, nn.Sigmoid, nn.LeakyReLU,
    nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d,
)  # fmt: skip
"""Layers that are computed as they are."""


BLOCK = 8
"""Input channels of a group are padded with zeros to a multiple of this. With as few as two or three, torch would
choose kernels by the number of groups, and slower ones."""


class Stack(nn.Module):
    """The model of k workers: inputs [k, b, ...] to outputs [k, b, n], each worker with its own parameters.

    `models` are those of the workers, in training mode. `load` reads their parameters from `rows`, and `store` writes
    their gradients to `grads`, both [k, P] as of `Workers`. The buffers of BatchNorm in `models` become views of those
    here, so that they are always the same.

    Raises ValueError for a model with layers that have no counterpart here, or with parameters outside of layers.
    """

    def __init__(self, models: Sequence[nn.Module], rows: Tensor, grads: Tensor, form: Form) -> None:
        super().__init__()
        self.form = form
        self.size = len(models)
        # The second one is only computed; neither its gradient nor its buffers are kept.
        alone = self.size == 1 and rows.device.type == "cpu"
        self.computed = 2 if alone else self.size
        self.model = copy.deepcopy(models[0])
        parameters = [parameter for parameter in models[0].parameters() if parameter.requires_grad]
        self._rows, self._grads = _views(parameters, rows), _views(parameters, grads)
        self._places: list[list[tuple[Layer, str]]] = [[] for _ in parameters]
        numbers = {id(parameter): number for number, parameter in enumerate(parameters)}
        for name, module in models[0].named_modules():
            if not _is_container(module):
                layer = self._counterpart(name, [model.get_submodule(name) for model in models])
                for kind, parameter in module.named_parameters():
                    _require(id(parameter) in numbers, f"a frozen parameter ({name}.{kind})")
                    self._places[numbers[id(parameter)]].append((layer, kind))
        _require(all(self._places), "parameters that belong to no layer")
        self._leaves: list[Tensor] = []

    def load(self) -> None:
        """Read the parameters from the rows, for the next passes."""
        self._leaves = []
        for row, places in zip(self._rows, self._places, strict=True):
            # A matrix product reads a matrix where it lies; everything else needs the workers' one after another.
            leaf = row.detach() if row.ndim == 3 else row.detach().contiguous()
            leaf = torch.cat([leaf, leaf]) if self.computed > self.size else leaf
            self._leaves.append(leaf.requires_grad_())
            for layer, kind in places:
                object.__setattr__(layer, kind, leaf)  # without a search among parameters, which takes longer

    def store(self) -> None:
        """Write the gradients of all passes since `load`."""
        gradients = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in self._leaves]
        torch._foreach_copy_(self._grads, [gradient[: self.size] for gradient in gradients])
        self._leaves = []

    def track(self, tracked: bool) -> None:
        """Whether the passes that follow change the running statistics of BatchNorm."""
        for layer in self.model.modules():
            if isinstance(layer, BatchNorm):
                layer.tracked = tracked

    def forward(self, inputs: Tensor) -> Tensor:
        if self.computed > self.size:
            inputs = torch.cat([inputs, inputs])
        if self.form == "channels":
            outputs = self.model(inputs.transpose(0, 1).flatten(1, 2)).unflatten(1, (self.computed, -1)).transpose(0, 1)
        else:
            outputs = self.model(inputs.flatten(0, 1)).unflatten(0, (self.computed, -1))
        return outputs[: self.size]

    def _counterpart(self, name: str, layers: list[nn.Module]) -> nn.Module:
        """Put the layer of all workers in place of the one of this name, unless it can be computed as it is."""
        kind = type(layers[0])
        if kind in WITHOUT_PARAMETERS or (isinstance(layers[0], nn.Dropout) and layers[0].p == 0):
            return layers[0]
        counterparts = COUNTERPARTS[self.form]
        _require(kind in counterparts, f"a layer {kind.__name__} ({name}) in the form {self.form}")
        layer = counterparts[kind](layers, self.computed)
        path, _, last = name.rpartition(".")
        setattr(self.model.get_submodule(path), last, layer)
        return layer


class Layer(nn.Module):
    """A layer of k workers, made from those of the single workers; with k of 2, it may be the copy of one.

    `weight` and `bias` are set before every step: the parameters of the workers, with a first dimension k.
    """

    weight: Tensor
    bias: Tensor | None = None

    def __init__(self, layers: Sequence[nn.Module], computed: int) -> None:
        super().__init__()
        self.workers = computed


class Convolution(Layer):
    """A convolution, [b, k * inputs, h, w] to [b, k * outputs, h', w']."""

    def __init__(self, layers: Sequence[nn.Module], computed: int) -> None:
        super().__init__(layers, computed)
        [layer, *_] = layers
        assert isinstance(layer, nn.Conv2d)
        _require(layer.groups == 1 and layer.padding_mode == "zeros", f"a layer {layer}")
        self.settings = layer.stride, layer.padding, layer.dilation
        self.inputs = layer.in_channels
        self.new_inputs = -layer.in_channels % BLOCK

    def forward(self, images: Tensor) -> Tensor:
        weight, bias = self.weight, None if self.bias is None else self.bias.flatten()
        if self.new_inputs:
            zeros = 0, 0, 0, 0, 0, self.new_inputs
            images = F.pad(images.unflatten(1, (self.workers, self.inputs)), zeros).flatten(1, 2)
            weight = F.pad(weight, zeros)
        return F.conv2d(images, weight.flatten(0, 1), bias, *self.settings, groups=self.workers)


class _GradientInOrder(torch.autograd.Function):
    """The identity, with a gradient that lies in memory in the order of its dimensions.

    Otherwise the order of a sum over samples would depend on the number of workers between them.
    """

    @staticmethod
    def forward(context: Any, values: Tensor) -> Tensor:
        return values.view_as(values)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        return gradients[0].contiguous()


class LinearOfChannels(Layer):
    """A linear layer, [b, k * inputs] to [b, k * outputs]."""

    def forward(self, values: Tensor) -> Tensor:
        of_workers = values.unflatten(1, (self.workers, -1)).transpose(0, 1).contiguous()
        outputs: Tensor = _GradientInOrder.apply(_linear(of_workers, self.weight, self.bias))
        return outputs.transpose(0, 1).flatten(1)


class LinearOfSamples(Layer):
    """A linear layer, [k * b, ..., inputs] to [k * b, ..., outputs]."""

    def forward(self, values: Tensor) -> Tensor:
        outputs = _linear(values.reshape(self.workers, -1, values.shape[-1]), self.weight, self.bias)
        return outputs.view(*values.shape[:-1], -1)


class GroupNorm(Layer):
    """A GroupNorm over [b, k * c, ...]."""

    def __init__(self, layers: Sequence[nn.Module], computed: int) -> None:
        super().__init__(layers, computed)
        [layer, *_] = layers
        assert isinstance(layer, nn.GroupNorm)
        _require(layer.affine, f"a layer {layer}")
        self.groups, self.eps = layer.num_groups, layer.eps

    def forward(self, values: Tensor) -> Tensor:
        assert self.bias is not None
        return F.group_norm(values, self.workers * self.groups, self.weight.flatten(), self.bias.flatten(), self.eps)


class BatchNorm(Layer):
    """A BatchNorm over [b, k * c, ...], with the statistics of each worker."""

    BUFFERS: ClassVar[tuple[str, ...]] = ("running_mean", "running_var", "num_batches_tracked")

    def __init__(self, layers: Sequence[nn.Module], computed: int) -> None:
        super().__init__(layers, computed)
        [layer, *_] = layers
        assert isinstance(layer, _BatchNorm)
        _require(layer.affine and layer.track_running_stats and layer.momentum is not None, f"a layer {layer}")
        self.momentum, self.eps, self.tracked = layer.momentum, layer.eps, True
        for name in self.BUFFERS:
            of_worker = [getattr(norm, name) for norm in layers]
            stacked = torch.stack([of_worker[index % len(layers)] for index in range(computed)])
            self.register_buffer(name, stacked)
            for norm, place in zip(layers, stacked, strict=False):
                setattr(norm, name, place)

    def forward(self, values: Tensor) -> Tensor:
        assert self.bias is not None
        mean = variance = None
        if self.tracked:
            self.num_batches_tracked.add_(1)
            mean, variance = self.running_mean.flatten(), self.running_var.flatten()
        weight, bias = self.weight.flatten(), self.bias.flatten()
        return F.batch_norm(values, mean, variance, weight, bias, True, self.momentum, self.eps)


class LayerNorm(Layer):
    """A LayerNorm over the last dimension of [k * b, ..., n]."""

    def __init__(self, layers: Sequence[nn.Module], computed: int) -> None:
        super().__init__(layers, computed)
        [layer, *_] = layers
        assert isinstance(layer, nn.LayerNorm)
        simple = layer.elementwise_affine and len(layer.normalized_shape) == 1
        _require(simple, f"a layer {layer}")
        self.shape, self.eps = layer.normalized_shape, layer.eps

    def forward(self, values: Tensor) -> Tensor:
        normal = F.layer_norm(values, self.shape, eps=self.eps).view(self.workers, -1, *self.shape)
        if self.bias is None:
            return (normal * self.weight.unsqueeze(1)).view(values.shape)
        return torch.addcmul(self.bias.unsqueeze(1), normal, self.weight.unsqueeze(1)).view(values.shape)


class TiedEmbeddingOfSamples(Layer):
    """A tied embedding, ids [k * b, T] to vectors [k * b, T, n], and to logits."""

    def forward(self, ids: Tensor) -> Tensor:
        of_workers = ids.unflatten(0, (self.workers, -1))
        first = torch.arange(self.workers, device=ids.device).view(-1, 1, 1) * self.weight.shape[1]
        return F.embedding((of_workers + first).flatten(0, 1), self.weight.flatten(0, 1))

    def logits(self, vectors: Tensor) -> Tensor:
        logits = _linear(vectors.reshape(self.workers, -1, vectors.shape[-1]), self.weight, None)
        return logits.view(*vectors.shape[:-1], -1)


class LearnedPositionsOfSamples(Layer):
    """Learned positions, [k * b, T, n] to the same shape."""

    def forward(self, vectors: Tensor) -> Tensor:
        of_workers = vectors.unflatten(0, (self.workers, -1))
        return (of_workers + self.weight[:, None, : vectors.shape[1]]).flatten(0, 1)


COUNTERPARTS: dict[Form, dict[type[nn.Module], type[Layer]]] = {
    "channels": {
        nn.Conv2d: Convolution, nn.Linear: LinearOfChannels, nn.GroupNorm: GroupNorm, nn.BatchNorm1d: BatchNorm,
        nn.BatchNorm2d: BatchNorm,
    },
    "samples": {
        nn.Linear: LinearOfSamples, nn.LayerNorm: LayerNorm, TiedEmbedding: TiedEmbeddingOfSamples,
        LearnedPositions: LearnedPositionsOfSamples,
    },
}  # fmt: skip


def _linear(values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Batched x W^T + b: [k, n, inputs], [k, outputs, inputs], [k, outputs] to [k, n, outputs]."""
    if bias is None:
        return torch.bmm(values, weight.transpose(1, 2))
    return torch.baddbmm(bias.unsqueeze(1), values, weight.transpose(1, 2))


def _views(parameters: Sequence[nn.Parameter], rows: Tensor) -> list[Tensor]:
    """For each parameter, those of all workers: views [k, ...] of `rows` [k, P] in its memory format."""
    views, offset = [], rows.storage_offset()
    for parameter in parameters:
        strides = rows.stride(0), *parameter.stride()
        views.append(rows.detach().as_strided((len(rows), *parameter.shape), strides, offset))
        offset += parameter.numel()
    return views


def _is_container(module: nn.Module) -> bool:
    """Whether a module computes nothing with parameters but what its children do."""
    return next(module.children(), None) is not None and not module._parameters


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise UserError(f"engine stacked: cannot compute {what}, allowed: engine serial")

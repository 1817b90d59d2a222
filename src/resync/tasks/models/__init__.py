"""Models, one file each.

`models/<name>.py` defines `build(input_shape, num_classes, options) -> nn.Module`, and `models/options` the
options. If its inputs are not float32 tensors [samples, *input_shape], the model's file also defines
`example(input_shape, samples)`. Importing this package does not import torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from resync.tasks.models.options.base import ModelOptions


def build(options: ModelOptions, input_shape: Sequence[int], num_classes: int, seed: int) -> nn.Module:
    """The model of these options, whose initial weights are a function of the seed of torch's generator alone."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return import_module(f"resync.tasks.models.{options.name}").build(tuple(input_shape), num_classes, options)


def num_parameters(options: ModelOptions, input_shape: Sequence[int], num_classes: int) -> int:
    """Number of trainable parameters of the model, counted without allocating them."""
    model = _without_values(options, tuple(input_shape), num_classes)
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def flops_per_sample(options: ModelOptions, input_shape: Sequence[int], num_classes: int) -> int:
    """Floating-point operations of a forward and a backward pass for one sample, according to torch's counter.

    It counts the multiplications and additions of matrix products and convolutions only; nothing is computed.
    """
    import torch
    from torch.nn import functional
    from torch.overrides import TorchFunctionMode
    from torch.utils.flop_counter import FlopCounterMode

    # These have no products, and what they return has the shape of their input. To compute this shape and that of the
    # gradient, which torch does in Python, would take most of the time.
    names = ("relu", "gelu", "silu", "dropout", "batch_norm", "group_norm", "layer_norm")
    keep_shape = {getattr(functional, name) for name in names} | {torch.relu}

    class PassedOn(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            # Without a gradient of its input, a norm still has one for its weights.
            passed_on = function in keep_shape and args[0].requires_grad
            return args[0] if passed_on else function(*args, **kwargs or {})

    model = _without_values(options, tuple(input_shape), num_classes)
    # Two samples, because BatchNorm refuses a single one.
    with torch.device("meta"), PassedOn(), FlopCounterMode(display=False) as counter:
        model(example(options, input_shape, 2)).sum().backward()
    return counter.get_total_flops() // 2


@cache
def _without_values(options: ModelOptions, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """The model on torch's device without memory; initial values, of which there are none, take most of the time."""
    import torch
    from torch import Tensor
    from torch.overrides import TorchFunctionMode

    initialise = {Tensor.normal_, Tensor.uniform_, Tensor.fill_, Tensor.zero_}

    class NoValues(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return args[0] if function in initialise else function(*args, **kwargs or {})

    with torch.device("meta"), NoValues():
        return build(options, input_shape, num_classes, seed=0)


def example(options: ModelOptions, input_shape: Sequence[int], samples: int) -> Any:
    """Inputs of the model of these options, of the right shape and type; their values mean nothing."""
    import torch

    module = import_module(f"resync.tasks.models.{options.name}")
    return module.example(input_shape, samples) if hasattr(module, "example") else torch.zeros(samples, *input_shape)

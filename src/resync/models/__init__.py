"""Models. `models/<name>.py` defines `build(input_shape, num_classes, **options) -> nn.Module`.

Where its inputs are no float32 tensors [samples, *input_shape], it also defines `example(input_shape, samples)`.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from resync.streams import stream_seed


def build(name: str, options: Mapping[str, Any], input_shape: Sequence[int], num_classes: int, seed: int) -> nn.Module:
    """The model `name`, its initial weights a function of the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_seed(seed, "init"))
        return import_module(f"resync.models.{name}").build(tuple(input_shape), num_classes, **options)


def num_parameters(name: str, options: Mapping[str, Any], input_shape: Sequence[int], num_classes: int) -> int:
    """Trainable parameters of the model, counted without allocating them."""
    with torch.device("meta"):
        model = build(name, options, input_shape, num_classes, seed=0)
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def flops_per_sample(name: str, options: Mapping[str, Any], input_shape: Sequence[int], num_classes: int) -> int:
    """Floating-point operations of a forward and a backward pass for one sample, by torch's counter.

    It counts products and sums of matrix products and convolutions, and nothing else; nothing is computed.
    """
    example = getattr(import_module(f"resync.models.{name}"), "example", _images)
    with torch.device("meta"):
        model = build(name, options, input_shape, num_classes, seed=0)
        # Two samples: BatchNorm refuses one.
        samples = example(input_shape, 2)
        with FlopCounterMode(display=False) as counter:
            model(samples).sum().backward()
    return counter.get_total_flops() // 2


def _images(input_shape: Sequence[int], samples: int) -> torch.Tensor:
    return torch.empty(samples, *input_shape)

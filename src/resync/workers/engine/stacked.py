"""The engine `stacked`: the workers of a process computed at once, each layer for all of them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from resync.base.errors import UserError
from resync.workers.engine.engine import Engine, EngineParts, Measured, Stacking, joined
from resync.workers.engine.settings import Form
from resync.workers.engine.stacked_layers import Stack
from resync.workers.engine.workers import even_parts

LARGEST_STACK = 8
"""Workers of a stack of the form `channels`: the activations of more would not fit into a cache."""

LIMITS: dict[Form, float] = {"channels": 60e6, "samples": 30e6}
"""Floating-point operations of a layer, forward and backward, for the samples of a worker's pass, up to which stacking
pays on one CPU thread. Beyond them a layer of one worker keeps the processor busy, and those of several do not fit into
its caches. `benchmarks/simulated.py` repeats the measurements; serial / stacked, processor time, for K = 8:

    10^6 operations            channels                               samples
     < 3      CNN 8-16, 8x8 and 14x14    4.3, 3.1, 2.9    MLP 64, digits      4.9, 3.2
     3 - 7    CNN 8-16, 14x14            2.2              ViT d48, b 8, 16    2.1, 1.7; MLP 128, b 32    1.3
     9 - 13   ResNet-8 w8, GN, BN        2.7, 2.3         ViT d48, b 32       1.5
    18 - 29   ResNet-8 w8, w16; CNN      1.8, 2.0; 1.3    MLP 128, ViT d64    1.2, 1.15
    48 - 52   ResNet-20 w16, 16x16       1.4              ViT d48, b 128      0.96
    73 - 75   ResNet-8 w8, w16           1.03, 1.14
   114 - 194  ResNet-20 w16, 32x32       0.93             ViT d64, b 32       0.95
"""
LARGEST_LAYER = 65536
"""Mean number of parameters of a layer up to which stacking pays: batched products of larger matrices are slower than
single ones. A step of an MLP 512-512 (223,000) takes 1.3 to 2.8 times as long, of an MLP 128 (51,000) 0.6 to 0.8."""


class Stacked(Engine):
    """For several whole workers in a process, whose models have a form for it and no dropout.

    A worker's gradient has the same bits with any number of workers in the process on the CPU, and differs from that of
    the engine `serial` in rounding. Raises ValueError for models that it does not support, for fp16 and for several
    processes per worker.
    """

    name = "stacked"

    def __init__(self, parts: EngineParts) -> None:
        super().__init__(parts)
        stacking = parts.stacking
        if stacking is None:
            raise UserError("engine stacked: found a model without a form for it (ModelOptions.form), allowed: serial")
        if self.loss_scales is not None:
            raise UserError("engine stacked: found precision fp16, allowed: fp32, tf32, bf16, or engine serial")
        if self.members.processes > 1:
            found = f"{self.members.processes} processes for a worker"
            raise UserError(f"engine stacked: found {found}, allowed: 1, or engine serial")
        self.losses = stacking.losses
        workers = self.workers
        largest = LARGEST_STACK if stacking.form == "channels" else workers.num_local
        self.slices = even_parts(workers.num_local, -(-workers.num_local // largest))
        self.stacks = [
            Stack(workers.models[part], workers.rows.data[part], workers.grads[part], stacking.form)
            for part in self.slices
        ]
        self.forwards = list(self.stacks)

    def gradients(self, inputs: Sequence[Any], targets: Sequence[Any], step: int = 0) -> Measured:
        """As of the engine `serial`; inputs and targets are tensors [k, b, ...]."""
        assert isinstance(inputs, Tensor)
        assert isinstance(targets, Tensor)
        return joined([self._of_stack(index, inputs[part], targets[part]) for index, part in enumerate(self.slices)])

    def _of_stack(self, index: int, inputs: Tensor, targets: Tensor) -> Measured:
        """Fill the gradients of the workers of a stack; returns what `losses` does."""
        stack, forward = self.stacks[index], self.forwards[index]
        stack.load()
        of_parts = []
        parts = zip(inputs.chunk(self.micro_batches, 1), targets.chunk(self.micro_batches, 1), strict=True)
        for number, (x, y) in enumerate(parts):
            stack.track(number * self.members.num_local < self.micro_batches)  # only member 0 does
            given = self.losses(forward, x, y)
            losses, further = given if isinstance(given, tuple) else (given, None)
            (losses.sum() / self.micro_batches).backward()
            of_parts.append(Measured(losses.detach(), further))
        stack.store()
        if len(of_parts) == 1:
            return of_parts[0]
        return Measured.of(torch.stack([part.columns() for part in of_parts]).mean(0))


def stacking_pays(stacking: Stacking, model: nn.Module) -> bool:
    """Whether `stacked` is faster than `serial` for the passes of this model, as measured on the CPU.

    A function of its arguments alone, so that a run has the same engine whenever it starts.
    """
    if stacking.sample is None or next(model.parameters()).device.type != "cpu":
        return False
    operations, parameters = of_a_layer(model, stacking.sample)
    return stacking.samples * operations <= LIMITS[stacking.form] and parameters <= LARGEST_LAYER


def of_a_layer(model: nn.Module, sample: Tensor) -> tuple[float, float]:
    """Means over linear layers and convolutions: operations for `sample` [1, ...], forward and backward; parameters.

    The model is passed through once, without a gradient, and is then as it was.
    """
    products: list[int] = []

    def count(layer: nn.Module, _: Any, output: Tensor) -> None:
        assert isinstance(layer, nn.Linear | nn.Conv2d)
        products.append(output.numel() * layer.weight[0].numel())

    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    hooks, training = [layer.register_forward_hook(count) for layer in layers], model.training
    with torch.no_grad():
        model.eval()(sample)
    model.train(training)
    for hook in hooks:
        hook.remove()
    return 3 * 2 * sum(products) / len(layers), sum(layer.weight.numel() for layer in layers) / len(layers)

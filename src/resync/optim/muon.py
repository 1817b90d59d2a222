"""Muon over rows: the matrices of all workers are orthogonalised together."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from resync.engine.workers import Workers
from resync.optim.adamw import decay
from resync.optim.options import muon

__all__ = ["Muon", "build", "decay", "orthogonalised"]


@dataclass(frozen=True)
class Variant:
    """The constants of a published Muon.

    `coefficients` are (a, b, c) of each iteration. With `damped`, momentum is a mean: M = m M + (1 - m) g, otherwise
    M = m M + g; with `nesterov`, (1 - m) g + m M is orthogonalised, otherwise M. `eps` guards against a norm of zero.
    A step of a matrix [r, c] is scaled by (r/c)^(1/2), or by max(1, r/c)^(1/2) if it is `clamped`.
    """

    coefficients: tuple[tuple[float, float, float], ...]
    damped: bool
    nesterov: bool
    eps: float
    clamped: bool


VARIANTS = {
    "muloco": Variant(
        (
            (4.0848, -6.8946, 2.9270),
            (3.9505, -6.3029, 2.6377),
            (3.7418, -5.5913, 2.3037),
            (2.8769, -3.1427, 1.2046),
            (2.8366, -3.0525, 1.2012),
        ),
        damped=False, nesterov=False, eps=1e-8, clamped=False,
    ),
    "modded_nanogpt": Variant(((2.0, -1.5, 0.5),) * 12, damped=True, nesterov=True, eps=1e-7, clamped=True),
    "torch": Variant(((3.4445, -4.7750, 2.0315),) * 5, damped=True, nesterov=True, eps=1e-7, clamped=True),
}  # fmt: skip
"""Sources: muloco-1's muloco.py and modded-nanogpt of 2025, both as of the facts known to this project; torch 2.9."""


class Muon(Optimizer):
    """One tensor of parameters per worker or one for all, [P] or [k, P], of which `matrices` are orthogonalised.

        M = m M + g;   w = (1 - lr decay) w - lr scale NS(M)          for the matrices; see `Variant` for other forms
        AdamW with the learning rate lr others_lr, bias-corrected     for all other parameters

    NS is the Newton-Schulz iteration (`orthogonalised`). `matrices` are pairs of a first element in the row and a shape
    [r, c]. Source: Jordan et al. 2024, with the constants of MuLoCo (Thérien et al. 2025) by default.
    """

    def __init__(self, parameters: list[nn.Parameter], options: muon.Muon, matrices: Sequence[tuple[int, torch.Size]]):
        super().__init__(parameters, {"lr": 0.0, "weight_decay": options.decay_of_all})
        self.options, self.variant = options, VARIANTS[options.variant]
        self.shapes: dict[torch.Size, list[slice]] = defaultdict(list)
        for first, shape in matrices:
            self.shapes[shape].append(slice(first, first + shape.numel()))
        ends = [0, *(end for first, shape in matrices for end in (first, first + shape.numel()))]
        between = pairwise([*ends, parameters[0].shape[-1]])
        self.others = [slice(first, end) for first, end in list(between)[::2] if first < end]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """A step of all parameters that have a gradient."""
        [group] = self.param_groups
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            if not state:
                state["step"] = parameter.new_zeros(())
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
            state["step"] += 1
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            tensors = (parameter, parameter.grad, state["exp_avg"], state["exp_avg_sq"])
            rows = [tensor.view(-1, parameter.shape[-1]) for tensor in tensors]
            self._step_matrices(group["lr"], *rows[:3])
            for part in self.others:
                self._step_others(group["lr"], state["step"], *(tensor[:, part] for tensor in rows))

    def _step_matrices(self, lr: float, rows: Tensor, grads: Tensor, moments: Tensor) -> None:
        m, variant = self.options.momentum, self.variant
        for (r, c), places in self.shapes.items():
            updates = []
            for place in places:
                moment, grad = moments[:, place], grads[:, place]
                moment.mul_(m).add_(grad, alpha=1 - m if variant.damped else 1.0)
                updates.append(grad.lerp(moment, m) if variant.nesterov else moment)
            found = orthogonalised(torch.cat(updates).view(-1, r, c), variant, getattr(torch, self.options.precision))
            scale = (max(1.0, r / c) if variant.clamped else r / c) ** 0.5
            for place, update in zip(places, found.reshape(len(places), len(rows), r * c), strict=True):
                rows[:, place].sub_(update, alpha=lr * scale)

    def _step_others(self, lr: float, step: Tensor, rows: Tensor, grads: Tensor, first: Tensor, second: Tensor) -> None:
        beta1, beta2 = self.options.beta1, self.options.beta2
        first.lerp_(grads, 1 - beta1)
        second.mul_(beta2).addcmul_(grads, grads, value=1 - beta2)
        size = (second / (1 - beta2**step)).sqrt_().add_(self.options.eps)
        rows.sub_(first / (1 - beta1**step) / size, alpha=lr * self.options.others_lr)


def orthogonalised(matrices: Tensor, variant: Variant, dtype: torch.dtype = torch.float32) -> Tensor:
    """Matrices [n, r, c] with singular values near 1 and the same singular vectors, by Newton-Schulz iterations.

        X = M / (|M| + eps), of r <= c by transposing;   A = X X^T;   X = a X + (b A + c A A) X

    Float64 matrices are iterated in float64, others in `dtype`.
    """
    x = matrices if matrices.dtype == torch.float64 else matrices.to(dtype)
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / (torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True) + variant.eps)
    for a, b, c in variant.coefficients:
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(matrices.dtype)


def build(parameters: list[nn.Parameter], options: muon.Muon, workers: Workers) -> Muon:
    """Muon for the matrices of the workers' hidden layers."""
    return Muon(parameters, options, list(_hidden_matrices(workers)))


def _hidden_matrices(workers: Workers) -> Iterator[tuple[int, torch.Size]]:
    """First element and shape of the weights of linear layers that are neither an embedding nor the output layer.

    The output layer is the last linear one. In a model with embeddings, the first of which is that of the tokens, it
    has an output for each token, or else the embedding itself is the output layer.
    """
    layers = list(workers.models[0].modules())
    embeddings = [layer for layer in layers if isinstance(layer, nn.Embedding)]
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    hidden = {id(layer.weight) for layer in linear} - {id(layer.weight) for layer in embeddings}
    if linear and (not embeddings or linear[-1].out_features == embeddings[0].num_embeddings):
        hidden.discard(id(linear[-1].weight))
    first = 0
    for parameter in workers.parameters[0]:
        if id(parameter) in hidden:
            yield first, parameter.shape
        first += parameter.numel()

"""Muon over rows: the matrices of all workers are orthogonalised together."""

from collections import defaultdict
from collections.abc import Iterable
from types import EllipsisType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from resync.base.errors import UserError
from resync.workers.engine.workers import Workers
from resync.workers.optim import adamw
from resync.workers.optim import options as declared
from resync.workers.optim.newton_schulz import orthogonalise

__all__ = ["MuonOptimizer", "build", "decay", "of_model"]
_EPS = 1e-8
"""What AdamW adds to the square root of the second moment."""
Part = slice | EllipsisType
"""The last indices of a tensor that a parameter of the model has: some of a row's, or all of its own."""


class MuonOptimizer(Optimizer):
    """Orthogonalised momentum for matrices, AdamW for the rest.

        M = m M + g;   w = (1 - lr decay) w - lr (r/c)^(1/2) NS(M)    for matrices [r, c]
        AdamW with the learning rate lr others_lr, bias-corrected     for all other parameters, and in their decay

    NS is the Newton-Schulz iteration (resync.workers.optim.newton_schulz). `layout` has, for all that a tensor of
    `parameters` holds, the tensor's number, the part of its last dimension, and the shape [r, c] if this part is a
    matrix to orthogonalise. Source: Jordan et al. 2024, with the constants of MuLoCo (Thérien et al. 2025).
    """

    def __init__(
        self,
        parameters: list[nn.Parameter],
        options: declared.Muon,
        layout: Iterable[tuple[int, Part, torch.Size | None]],
        lr: float = 0.0,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "weight_decay": options.decay_of_all})
        self.options = options
        self.matrices: dict[torch.Size, list[tuple[nn.Parameter, Part]]] = defaultdict(list)
        self.others: list[tuple[nn.Parameter, Part]] = []
        for number, part, shape in layout:
            places = self.others if shape is None else self.matrices[shape]
            places.append((parameters[number], part))

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """A step of all parameters that have a gradient; returns the loss of the closure, if there is one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        [group] = self.param_groups
        for parameter in (candidate for candidate in group["params"] if candidate.grad is not None):
            state = self.state[parameter]
            if not state:
                state["step"] = parameter.new_zeros(())
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
            state["step"] += 1
        for shape, places in self.matrices.items():
            if stepped := [place for place in places if place[0].grad is not None]:
                self._step_matrices(group["lr"], shape, stepped)
        for parameter, part in self.others:
            if parameter.grad is not None:
                self._step_others(group["lr"], parameter, part)
        return loss

    def _step_matrices(self, lr: float, shape: torch.Size, places: list[tuple[nn.Parameter, Part]]) -> None:
        r, c = shape
        moments = []
        for parameter, part in places:
            assert parameter.grad is not None
            moment = self.state[parameter]["exp_avg"][..., part]
            moments.append(moment.mul_(self.options.momentum).add_(parameter.grad[..., part]))
        stacked = torch.cat([moment.reshape(-1, r, c) for moment in moments])
        updates = orthogonalise(stacked, getattr(torch, self.options.precision)).chunk(len(places))
        scale = (r / c) ** 0.5
        for (parameter, part), update in zip(places, updates, strict=True):
            weights = parameter[..., part].mul_(1 - lr * self.param_groups[0]["weight_decay"])
            weights.sub_(update.reshape(weights.shape), alpha=lr * scale)

    def _step_others(self, lr: float, parameter: nn.Parameter, part: Part) -> None:
        assert parameter.grad is not None
        gradient, state = parameter.grad[..., part], self.state[parameter]
        first, second, step = state["exp_avg"][..., part], state["exp_avg_sq"][..., part], state["step"]
        first.lerp_(gradient, 1 - self.options.beta1)
        second.mul_(self.options.beta2).addcmul_(gradient, gradient, value=1 - self.options.beta2)
        size = (second / (1 - self.options.beta2**step)).sqrt_().add_(_EPS)
        update = first / (1 - self.options.beta1**step) / size
        lr *= self.options.others_lr
        parameter[..., part].mul_(1 - lr * self.param_groups[0]["weight_decay"]).sub_(update, alpha=lr)


@torch.no_grad()
def decay(rows: nn.Parameter, rate: Tensor, optimizer: MuonOptimizer, *arguments: Any) -> None:
    """Decay the parameters by one rate per parameter, [P], times the learning rate that the parameter has."""
    rate = rate.clone()
    for parameter, part in optimizer.others:
        if parameter is rows:
            rate[part] *= optimizer.options.others_lr
    adamw.decay(rows, rate, optimizer)


def build(parameters: list[nn.Parameter], options: declared.Muon, workers: Workers) -> MuonOptimizer:
    """Muon over the rows of the workers."""
    hidden = _hidden_matrices(workers.models[0])
    layout: list[tuple[int, slice, torch.Size | None]] = []
    for number in range(len(parameters)):
        first = 0
        for parameter in workers.parameters[0]:
            is_matrix, end = id(parameter) in hidden, first + parameter.numel()
            if not is_matrix and layout and layout[-1][::2] == (number, None):
                first = layout.pop()[1].start
            layout.append((number, slice(first, end), parameter.shape if is_matrix else None))
            first = end
    return MuonOptimizer(parameters, options, layout)


def of_model(
    model: nn.Module, lr: float, *, matrices: Iterable[nn.Parameter] | None = None, **options: Any
) -> MuonOptimizer:
    """Muon for a training loop of your own: over the trainable parameters of `model`, with `options` of this name.

    Unlike torch.optim.Muon it has all parameters, as the algorithms of this library require.

    `matrices` are those that Muon steps, each [outputs, inputs]; AdamW steps all other parameters. By default they are
    the weights of nn.Linear and nn.MultiheadAttention except for embeddings and the output layer. The latter is the
    last nn.Linear, unless its outputs are as many as the numbers of a token in the first nn.Embedding, which is then
    taken for the output layer itself.

    Raises ValueError if there are no matrices by this rule, as in models of other layers (Conv1D in Hugging Face's
    GPT-2), and if one of `matrices` has not two dimensions or is not trained.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if matrices is None:
        hidden = _hidden_matrices(model)
        if hidden.isdisjoint(map(id, parameters)):
            raise UserError("Muon would step nothing: the model has no trained weight of a hidden nn.Linear or "
                            "nn.MultiheadAttention; name its matrices (matrices=...), or take AdamW")  # fmt: skip
    else:
        hidden = set(map(id, named := list(matrices)))
        for matrix in named:
            if matrix.ndim != 2 or not any(matrix is parameter for parameter in parameters):
                raise UserError(f"matrices: found a tensor of shape {list(matrix.shape)}, allowed: trainable "
                                "parameters of the model with two dimensions")  # fmt: skip
    layout = [
        (number, ..., parameter.shape if id(parameter) in hidden else None)
        for number, parameter in enumerate(parameters)
    ]
    return MuonOptimizer(parameters, declared.Muon(**options), layout, lr)


def _hidden_matrices(model: nn.Module) -> set[int]:
    """The ids of the matrices of linear layers that are neither an embedding nor the output layer, see `of_model`."""
    layers = list(model.modules())
    embeddings = [layer for layer in layers if isinstance(layer, nn.Embedding)]
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    hidden = {id(layer.weight) for layer in linear} - {id(layer.weight) for layer in embeddings}
    if linear and (not embeddings or linear[-1].out_features != embeddings[0].embedding_dim):
        hidden.discard(id(linear[-1].weight))
    # Linear maps that nn.MultiheadAttention has as parameters of its own.
    attention = [layer for layer in layers if isinstance(layer, nn.MultiheadAttention)]
    names = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")
    return hidden | {id(getattr(layer, name)) for layer in attention for name in names} - {id(None)}

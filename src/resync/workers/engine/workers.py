"""Workers are rows: the k workers of a process share one buffer of parameters and one of gradients.

Averaging is then a mean over rows, gossip is a weighted sum of rows, a message is a row as it is stored in memory, and
one optimizer over the whole buffer steps every worker.
"""

import copy
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from resync.base.errors import UserError
from resync.workers.engine.shards import local


class Workers:
    """The `num_local` workers of this process, all starting from the weights of `model`.

    `rows` and `grads` are [k, P]: row i holds all trainable parameters of worker i, concatenated, and the parameters
    of `models[i]` and their `.grad` are views into it. `rows` is a leaf that any torch optimizer can update as one
    tensor. Frozen parameters are not included. Buffers (BatchNorm statistics) belong to each model.

    `parameters[i]` lists the parameters of worker i that were trainable at the start, in the order of its row. A later
    `requires_grad_` changes nothing about the row.

    Raises ValueError for a model without trainable parameters or with more than one dtype or device.
    """

    def __init__(self, model: nn.Module, num_local: int) -> None:
        self._rows = row_like(trainable(model), num_local)
        self.models = [model, *(copy.deepcopy(model) for _ in range(num_local - 1))]
        self.parameters = [trainable(of_worker) for of_worker in self.models]
        self._rows.grad = self.grads
        for parameters, row, gradients in zip(self.parameters, self._rows.data, self.grads, strict=True):
            copy_into(parameters, row)
            bind(parameters, row)
            for parameter, place in places(parameters, gradients):
                parameter.grad = place
        self._split: list[nn.Parameter] = []

    @cached_property
    def grads(self) -> Tensor:
        """The gradients of the local workers, [k, P]."""
        return torch.zeros_like(self._rows)

    @property
    def grads_to_average(self) -> Tensor:
        """What an average of the gradients averages."""
        return self.grads

    @property
    def rows(self) -> nn.Parameter:
        return self._rows

    def sha256(self) -> str:
        """SHA-256 of the bytes of the first worker's row."""
        return sha256(self.rows.data[0].cpu().view(torch.uint8).numpy()).hexdigest()

    def gradient_places(self, index: int) -> list[tuple[nn.Parameter, Tensor]]:
        """The parameters of local worker `index`, each with its part of the row of `grads`."""
        return list(places(self.parameters[index], self.grads[index]))

    def split(self) -> list[nn.Parameter]:
        """One parameter [P] per worker, a view of its row, for an optimizer that steps workers separately.

        Its gradient is the worker's row of `grads`.
        """
        self._split = [nn.Parameter(row) for row in self.rows.data]
        self.step_only(range(self.num_local))
        return self._split

    def step_only(self, chosen: Collection[int]) -> None:
        """Let only the chosen local workers take the next optimizer step: the others have no gradient then.

        Raises ValueError if one optimizer step is that of all workers, which needs an optimizer over `split()`.
        """
        if self._split:
            for index, parameter in enumerate(self._split):
                parameter.grad = self.grads[index] if index in chosen else None
        else:
            raise UserError("workers that step separately need an optimizer with one parameter per worker")

    @property
    def num_local(self) -> int:
        """k, the number of workers of this process."""
        return len(self.models)

    @property
    def num_parameters(self) -> int:
        """P, the number of trainable parameters of one worker."""
        return self.rows.shape[1]

    @property
    def matrices(self) -> Tensor:
        """A mask [P] of the parameters that are weights of linear or convolutional layers: 1 for these, else 0."""
        return self._weights_of(nn.Linear, _ConvNd)

    @property
    def matrices_and_embeddings(self) -> Tensor:
        """The same mask of these weights and of embeddings."""
        return self._weights_of(nn.Linear, _ConvNd, nn.Embedding)

    def _weights_of(self, *layers: type[nn.Module]) -> Tensor:
        weights = {id(layer.weight) for layer in self.models[0].modules() if isinstance(layer, layers)}
        chosen = torch.zeros_like(self.rows.data[0])
        for parameter, place in places(self.parameters[0], chosen):
            place.fill_(id(parameter) in weights)
        return chosen

    @torch.no_grad()
    def clip_gradients(self, max_norm: float, norms: Tensor | None = None) -> None:
        """Scale down each worker's gradient to the L2 norm `max_norm` if its norm is larger, or that in `norms`."""
        norms = self.gradient_norms() if norms is None else norms
        # The guard against a norm of zero is that of torch.nn.utils.clip_grad_norm_.
        self.grads.mul_((max_norm / (norms + 1e-6)).clamp(max=1))

    def gradient_norms(self) -> Tensor:
        """The L2 norm of each worker's gradient, [k, 1]."""
        return torch.linalg.vector_norm(self.grads, dim=1, keepdim=True)

    def fragments(self, number: int) -> list[slice]:
        """That many contiguous parts of a row, of equal size, which follow each other."""
        return even_parts(self.num_parameters, number)

    def state_dict(self) -> dict[str, Any]:
        """The rows [k, P] and each buffer of the models as [k, ...], under "workers".

        With workers that step separately, also their latest gradients: the log has the norms of all.
        """
        buffers = [dict(model.named_buffers()) for model in self.models]
        stacked = {f"buffer {name}": torch.stack([own[name] for own in buffers]) for name in buffers[0]}
        latest = {"grads": self.grads} if self._split else {}
        return {"workers": {"rows": self.rows.detach(), **latest, **stacked}}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rows.copy_(state["workers"]["rows"])
        if "grads" in state["workers"]:
            self.grads.copy_(state["workers"]["grads"])
        for index, model in enumerate(self.models):
            for name, buffer in model.named_buffers():
                buffer.copy_(state["workers"][f"buffer {name}"][index])


def even_parts(size: int, number: int) -> list[slice]:
    """So many contiguous parts of `size` elements, of about the same size, which follow each other."""
    return [slice(*ends) for ends in pairwise(size * index // number for index in range(number + 1))]


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """The trainable parameters; one that several modules share appears once."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def alike(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """The parameters that share a dtype and a device, and so a row, in the order in which these first appear."""
    kinds = dict.fromkeys((parameter.dtype, parameter.device) for parameter in parameters)
    return [[parameter for parameter in parameters if (parameter.dtype, parameter.device) == kind] for kind in kinds]


def row_like(parameters: Sequence[nn.Parameter], num_local: int) -> nn.Parameter:
    """An empty row [num_local, P] for what of these parameters is in this process; errors as of `Workers`."""
    dtypes = {parameter.dtype for parameter in parameters}
    if len(dtypes) != 1:
        found = ", ".join(sorted(str(dtype) for dtype in dtypes)) or "none"
        raise UserError(f"trainable parameters must exist and share one dtype, found: {found}")
    devices = {parameter.device for parameter in parameters}
    if len(devices) != 1:
        found = ", ".join(sorted(map(str, devices)))
        raise UserError(f"trainable parameters must share one device, found: {found}")
    size = sum(local(parameter).numel() for parameter in parameters)
    return nn.Parameter(torch.empty(num_local, size, dtype=parameters[0].dtype, device=parameters[0].device))


def places(parameters: Sequence[nn.Parameter], row: Tensor) -> Iterator[tuple[nn.Parameter, Tensor]]:
    """Each parameter with its part of `row` [P], in the shape and memory format of what of it is in this process."""
    offset = 0
    for parameter in parameters:
        own = local(parameter)
        part = row[offset : offset + own.numel()]
        dense = torch.empty_like(own, memory_format=torch.preserve_format)
        yield parameter, part.as_strided(own.shape, dense.stride())
        offset += own.numel()


def copy_into(parameters: Sequence[nn.Parameter], row: Tensor) -> None:
    """Copy parameters, or what of them is in this process, into their parts of `row` [P]."""
    for parameter, place in places(parameters, row):
        place.copy_(local(parameter.data))


def bind(parameters: Sequence[nn.Parameter], row: Tensor) -> None:
    """Make the parameters views of `row` [P], with its values."""
    for parameter, place in places(parameters, row):
        parameter.data = place

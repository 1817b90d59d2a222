"""One worker that is a model in somebody's training loop, with an optimizer over the model's own parameters."""

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from math import nan
from typing import Any

import torch
from torch import Tensor, nn

from resync.workers.engine.shards import local
from resync.workers.engine.workers import Workers, bind, copy_into, row_like


class AttachedWorkers(Workers):
    """The worker that trains `parameters` of `model`, which become views of the row with `bind`, in place.

    Until then nothing about the model has changed. The parameters share a dtype and a device: a model with several
    has an `AttachedWorkers` for each. Gradients stay separate tensors, because such loops discard them (`zero_grad`)
    and may leave some out. They have a row only if an algorithm asks for it. Behind it are N marks, one for each
    parameter: whether it has a gradient, NaN for a sparse one. They are averaged with the gradients, so that all
    workers give a gradient to a parameter to which any worker gives one.
    """

    def __init__(self, model: nn.Module, parameters: Sequence[nn.Parameter]) -> None:
        self._rows = row_like(parameters, 1)
        self.models, self.parameters = [model], [list(parameters)]
        self._split = []
        copy_into(self.parameters[0], self._rows.data[0])

    def bind(self) -> None:
        """Let the parameters be the row; they have no gradient then."""
        bind(self.parameters[0], self._rows.data[0])
        self._addresses = [parameter.data_ptr() for parameter in self.parameters[0]]
        for parameter in self.parameters[0]:
            parameter.grad = None

    @cached_property
    def grads_to_average(self) -> Tensor:
        """The gradients and their marks, [1, P + N]."""
        return self._rows.new_zeros(1, self._rows.shape[1] + len(self.parameters[0]))

    @cached_property
    def grads(self) -> Tensor:
        return self.grads_to_average[:, : self._rows.shape[1]]

    def write_back(self) -> None:
        """Let the parameters have the values of the rows: they are views of them."""

    def shown(self) -> AbstractContextManager[None]:
        """In the block the parameters have the values of the rows, as always."""
        return nullcontext()

    def are_bound(self) -> bool:
        """Whether all parameters are still stored in the row; cheap enough to ask in every step."""
        return [parameter.data_ptr() for parameter in self.parameters[0]] == self._addresses

    def unbound(self) -> list[nn.Parameter]:
        """The parameters that are stored elsewhere now, for the error."""
        pairs = zip(self.parameters[0], self._addresses, strict=True)
        return [parameter for parameter, address in pairs if parameter.data_ptr() != address]

    def spread(self, state: Any) -> Any:
        """A state with rows [..., P] as a checkpoint is to have them."""
        return state

    def gathered(self, state: Any) -> Any:
        """What `spread` was given."""
        return state

    def pack_gradients(self) -> None:
        """Make `grads` and its marks those of the parameters; zeros where a parameter has no gradient."""
        marks = []
        for parameter, place in self._places_of_gradients:
            gradient = parameter.grad
            dense = gradient is not None and gradient.layout is torch.strided
            marks.append(1.0 if dense else 0.0 if gradient is None else nan)
            if not dense:
                place.zero_()
            elif gradient is not place:
                place.copy_(local(gradient))
        self._marks.copy_(torch.tensor(marks))

    def unpack_gradients(self) -> None:
        """Make `grads` the parameters' gradients; without a mark and all zero, there is none.

        The loop's next gradient may be added to them, or replace them. Raises RuntimeError on all workers if any has a
        sparse gradient.
        """
        marks: list[float] = []
        for index, (parameter, place) in enumerate(self._places_of_gradients):
            # Where all parameters have a gradient, nothing waits for the marks to come from a GPU.
            if parameter.grad is None or parameter.grad.layout is not torch.strided:
                marks = marks or self._marks.tolist()
                if marks[index] != marks[index]:
                    name = next(name for name, candidate in self.models[0].named_parameters() if candidate is parameter)
                    raise RuntimeError(
                        f"the gradient of {name} is sparse and cannot be averaged, allowed: sparse=False, or a method "
                        "that averages parameters only, such as LocalSGD"
                    )
                if not marks[index] and not place.count_nonzero():
                    continue
            self._give(parameter, place)

    def step_only(self, chosen: Collection[int]) -> None:
        """Without a chosen worker, let the next optimizer step change nothing: there is no gradient then."""
        if not chosen:
            self.grads_to_average.zero_()
            for parameter in self.parameters[0]:
                parameter.grad = None

    def _give(self, parameter: nn.Parameter, gradient: Tensor) -> None:
        parameter.grad = gradient

    @property
    def _marks(self) -> Tensor:
        return self.grads_to_average[0, self._rows.shape[1] :]

    @cached_property
    def _places_of_gradients(self) -> list[tuple[nn.Parameter, Tensor]]:
        return self.gradient_places(0)

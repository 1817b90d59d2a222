"""Gradients on their way from the backward pass into the rows."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from torch import Tensor, nn


class Gradients:
    """The gradients of one model, which the backward pass puts into a row as it makes them.

    While there is no `.grad` to add to, autograd hands over a tensor of its own. It is copied to its place in the row
    while it is in the cache, and its memory is free again before the next layer needs some; filling the row with zeros
    and adding to it takes twice the time, and to keep all of autograd's tensors twice the memory. Outside of
    `collecting` each `.grad` is its part of the row.
    """

    def __init__(self, places: Sequence[tuple[nn.Parameter, Tensor]]) -> None:
        self.places = places
        self._missing: set[int] | None = None
        """Outside of `collecting` None; in it the numbers of the parameters that no backward pass has reached yet."""
        for number, (parameter, place) in enumerate(places):
            parameter.register_post_accumulate_grad_hook(partial(self._store, number, place))

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """The backward passes of the block fill the row; the parts of parameters that they do not reach are zero."""
        for parameter, _ in self.places:
            parameter.grad = None
        missing = self._missing = set(range(len(self.places)))
        yield
        self._missing = None
        for number, (parameter, place) in enumerate(self.places):
            if number in missing:
                place.zero_()
            parameter.grad = place

    def _store(self, number: int, place: Tensor, parameter: nn.Parameter) -> None:
        if self._missing is None:
            return
        gradient, parameter.grad = parameter.grad, None
        assert gradient is not None
        if number in self._missing:
            place.copy_(gradient)
        else:
            place.add_(gradient)
        self._missing.discard(number)

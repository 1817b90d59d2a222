"""Gradients on their way from the backward pass into the rows, and averages of them that start meanwhile."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn

FIRST_BUCKET, BUCKET = 2**20, 25 * 2**20
"""Bytes of the bucket that is full first, so that its average starts early, and of all others, as in torch's DDP."""

StartAverage = Callable[[Tensor], dist.Work]
"""Starts to sum a part of a row over some processes, in place."""


class Gradients:
    """The gradients of one model, which the backward pass puts into a row as it makes them.

    While there is no `.grad` to add to, autograd hands over a tensor of its own. It is copied to its place in the row
    while it is in the cache, and its memory is free again before the next layer needs some; filling the row with zeros
    and adding to it takes twice the time, and to keep all of autograd's tensors twice the memory. Outside of
    `collecting` each `.grad` is its part of the row.

    With `start_average`, the row becomes the mean over `processes`: every bucket of the row, from its end, is summed as
    soon as it is full, while the backward pass goes on. All processes start their buckets in one order.
    """

    def __init__(
        self,
        places: Sequence[tuple[nn.Parameter, Tensor]],
        row: Tensor,
        start_average: StartAverage | None = None,
        processes: int = 1,
    ) -> None:
        self.places, self.row = places, row
        self.start_average, self.processes = start_average, processes
        self.buckets = list(_buckets(places, row)) if start_average else []
        self.last = True
        """Whether the backward pass is the last one that adds to the row."""
        self._active = False
        self._missing: set[int] = set()
        self._started: list[dist.Work] = []
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(partial(self._store, number, place))
            for number, (parameter, place) in enumerate(places)
        ]

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """The backward passes of the block fill the row; the parts of parameters that they do not reach are zero."""
        self.begin()
        yield
        self.end()

    def begin(self) -> None:
        for parameter, _ in self.places:
            parameter.grad = None
        self._missing, self._late = set(range(len(self.places))), set(range(len(self.places)))
        self._active, self.last = True, True

    def end(self) -> None:
        """After them: wait for the averages."""
        for number in self._missing:
            self.places[number][1].zero_()
        self._active, self._late = False, set()
        self._start_full_buckets()
        for work in self._started:
            work.wait()
        self._started = []
        for parameter, place in self.places:
            parameter.grad = place

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _store(self, number: int, place: Tensor, parameter: nn.Parameter) -> None:
        if not self._active:
            return
        gradient, parameter.grad = parameter.grad, None
        assert gradient is not None
        if number not in self._missing:
            place.add_(gradient, alpha=1 / self.processes)
        elif self.processes == 1:
            place.copy_(gradient)
        else:
            torch.mul(gradient, 1 / self.processes, out=place)
        self._missing.discard(number)
        if self.last and self.start_average:
            self._late.discard(number)
            self._start_full_buckets()

    def _start_full_buckets(self) -> None:
        """Start the averages of the next buckets for which no parameter is late."""
        while len(self._started) < len(self.buckets):
            numbers, part = self.buckets[len(self._started)]
            if not self._late.isdisjoint(numbers):
                return
            assert self.start_average
            self._started.append(self.start_average(part))


def _buckets(places: Sequence[tuple[nn.Parameter, Tensor]], row: Tensor) -> Iterator[tuple[range, Tensor]]:
    """The numbers of the parameters of every bucket and its part of the row, from the end of the row."""
    sizes = [place.numel() for _, place in places]
    last, end, limit = len(sizes), sum(sizes), FIRST_BUCKET
    first, begin = last, end
    while first:
        first, begin = first - 1, begin - sizes[first - 1]
        if (end - begin) * row.element_size() >= limit or first == 0:
            yield range(first, last), row[begin:end]
            last, end, limit = first, begin, BUCKET

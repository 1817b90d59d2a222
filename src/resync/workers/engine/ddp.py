"""The engine `ddp`: torch's DistributedDataParallel, which averages gradients during the backward pass."""

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from resync.workers.engine.engine import Engine, EngineParts


class Ddp(Engine):
    """For workers with one or more processes each (Li et al. 2020).

    It averages over all workers for algorithms that average gradients, and otherwise over the members of a worker.
    torch's buckets are copied to the row of gradients after the backward pass.
    """

    name = "ddp"

    def __init__(self, parts: EngineParts) -> None:
        super().__init__(parts)
        self.transport = parts.transport
        self.averages_gradients = parts.may_average
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # later versions of torch rename broadcast_buffers
            self.module = DistributedDataParallel(
                self.workers.models[0],
                process_group=None if self.averages_gradients else self.members.replica_group,
                init_sync=False,
                broadcast_buffers=False,
                gradient_as_bucket_view=True,
                # A loss may leave parameters out, as with the other engines. Besides, torch would otherwise change its
                # buckets after the first step, and with them the rounding of sums over three or more processes: a run
                # that continues would not have the bits of one that was left alone. torch says once that it costs time.
                find_unused_parameters=True,
            )
        self.forwards = [self.module]

    @contextmanager
    def collecting(self, index: int) -> Iterator[None]:
        """The context of the backward passes of this process's worker, after which its row has their average."""
        places = self.workers.gradient_places(index)
        for parameter, _ in places:
            parameter.grad = None
        yield
        with torch.no_grad():
            for parameter, place in places:
                place.zero_() if parameter.grad is None else place.copy_(parameter.grad)
                parameter.grad = place
        if self.averages_gradients:
            self.transport.count_overlapped(self.workers.grads[index])

    def incomplete(self) -> AbstractContextManager[Any]:
        """A context without averaging: only the backward pass of the last micro-batch averages."""
        return self.module.no_sync()

    def average_in_replica(self, gradient: Tensor) -> None:
        """Nothing: the backward pass has averaged over the members."""

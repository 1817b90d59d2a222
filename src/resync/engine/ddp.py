"""The engine `ddp`: distributed data parallel, which averages gradients during the backward pass."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from resync.engine.engine import Engine
from resync.engine.gradients import Gradients
from resync.engine.transport import Transport


class Ddp(Engine):
    """For workers with one or more processes each.

    It averages over all workers for algorithms that average gradients, and otherwise over the members of a worker. Like
    torch's DistributedDataParallel (Li et al. 2020) it sums buckets of gradients while the backward pass goes on; here
    the row of gradients itself consists of the buckets, so that none is copied there and back.
    """

    name = "ddp"

    def __init__(self, *arguments: Any, transport: Transport, averages_gradients: bool, **settings: Any) -> None:
        self.transport = transport
        self.averages_gradients = averages_gradients
        super().__init__(*arguments, **settings)

    def gradients_in_rows(self) -> list[Gradients]:
        """The gradients of the one worker of this process, averaged on their way."""
        transport, workers = self.transport, self.workers
        if self.averages_gradients:
            start, processes = transport.start_sum, transport.world_size
        else:
            start, processes = transport.start_replica_sum, transport.members.processes
        return [Gradients(workers.gradient_places(0), workers.grads[0], start, processes)]

    @contextmanager
    def incomplete(self) -> Iterator[None]:
        """A context without averaging: only the backward pass of the last micro-batch averages."""
        [gradients] = self.gradients_of
        gradients.last = False
        yield
        gradients.last = True

    def average_in_replica(self, gradient: Tensor) -> None:
        """Nothing: the backward pass has averaged over the members."""

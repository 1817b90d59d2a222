"""The engine `ddp`: torch's DistributedDataParallel, which averages gradients during the backward pass."""

from contextlib import AbstractContextManager
from inspect import signature
from typing import Any

from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from resync.engine.engine import Engine
from resync.engine.transport import Transport

# torch is renaming the flag with which DDP overwrites all buffers with rank 0's; here each worker has its own.
_KNOWN = signature(DistributedDataParallel).parameters
_SYNC_BUFFERS = "forward_sync_buffers" if "forward_sync_buffers" in _KNOWN else "broadcast_buffers"


class Ddp(Engine):
    """For workers with one or more processes each.

    It averages over all workers for algorithms that average gradients, and otherwise over the members of a worker.
    """

    name = "ddp"

    def __init__(self, *arguments: Any, transport: Transport, averages_gradients: bool, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.averages_gradients = averages_gradients
        group = None if averages_gradients else transport.members.inside
        hook = Transport.average_bucket if averages_gradients else Transport.average_bucket_inside
        self.module = DistributedDataParallel(self.workers.models[0], process_group=group, **{_SYNC_BUFFERS: False})
        self.module.register_comm_hook(transport, hook)
        self.forwards = [self.module]

    def incomplete(self) -> AbstractContextManager[Any]:
        """A context without averaging: only the backward pass of the last micro-batch averages."""
        return self.module.no_sync()

    def average_inside(self, gradient: Tensor) -> None:
        """Nothing: the backward pass has averaged over the members."""

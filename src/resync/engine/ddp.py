"""The engine `ddp`: torch's DistributedDataParallel, which averages gradients during the backward pass."""

from contextlib import AbstractContextManager
from inspect import signature
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from resync.engine.engine import Engine
from resync.engine.transport import Transport

# torch is renaming the flag with which DDP overwrites all buffers with rank 0's; here each worker has its own.
_KNOWN = signature(DistributedDataParallel).parameters
_SYNC_BUFFERS = "forward_sync_buffers" if "forward_sync_buffers" in _KNOWN else "broadcast_buffers"


class Ddp(Engine):
    """For algorithms that average gradients, with one worker in each of several processes."""

    name = "ddp"
    averages_gradients = True

    def __init__(self, *arguments: Any, transport: Transport, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.module = DistributedDataParallel(self.workers.models[0], **{_SYNC_BUFFERS: False})
        self.module.register_comm_hook(transport, type(transport).average_bucket)
        self.forwards = [self.module]

    def incomplete(self) -> AbstractContextManager[Any]:
        """A context without averaging: only the backward pass of the last micro-batch averages."""
        return self.module.no_sync()

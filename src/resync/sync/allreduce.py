"""Synchronous data-parallel training."""

from inspect import signature

from torch.nn.parallel import DistributedDataParallel

from resync.sync.algorithm import Algorithm, Training
from resync.sync.options import allreduce

# torch is renaming the flag with which DDP overwrites all buffers by rank 0's; here they belong to each worker.
_KNOWN = signature(DistributedDataParallel).parameters
_SYNC_BUFFERS = "forward_sync_buffers" if "forward_sync_buffers" in _KNOWN else "broadcast_buffers"


class AllReduce(Algorithm):
    """Parallel SGD / AdamW: every step uses the gradient averaged over all K workers.

        g = mean_k g_k(x);   x = optimizer(x, g)

    Equal to large-batch training and to torch's DistributedDataParallel (Gu et al. 2024, Algorithm 1).
    """

    averages_gradients = True

    def after_backward(self) -> None:
        """Average the gradients."""
        self.transport.mean_(self.workers.grads)


class Overlapped(AllReduce):
    """The same by torch's DistributedDataParallel, which averages while the backward pass still runs.

    It needs one worker a process, and a backward pass that it can see: the one of resync's own training loop.
    """

    def __init__(self, training: Training) -> None:
        super().__init__(training)
        module = DistributedDataParallel(self.workers.models[0], **{_SYNC_BUFFERS: False})
        module.register_comm_hook(self.transport, type(self.transport).average_bucket)
        self.workers.forwards[0] = module
        self.workers.incomplete = module.no_sync

    def after_backward(self) -> None:
        """The gradients are averaged already: once more where a loss scale was too large, which is no other volume."""
        self.transport.count_average(self.workers.grads, on_wire=False)


def build(training: Training, options: allreduce.AllReduce) -> Algorithm:
    """AllReduce by the chosen engine: `torch`, overlapped where every process hosts one worker, or `deepspeed`.

    In a loop of the caller's own (`workers.attached`), whose backward pass nothing here sees, without overlap.
    """
    if options.engine == "deepspeed":
        from resync.sync.deepspeed_engine import DeepSpeed

        return DeepSpeed(training, options.zero_stage)
    transport = training.transport
    overlapped = 1 < transport.world_size == transport.num_workers and not training.workers.attached
    return Overlapped(training) if overlapped else AllReduce(training)

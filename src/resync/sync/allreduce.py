"""Synchronous data-parallel training."""

from resync.sync.algorithm import Algorithm, Training
from resync.sync.options import allreduce


class AllReduce(Algorithm):
    """Parallel SGD / AdamW: every step uses the gradient averaged over all K workers.

        g = mean_k g_k(x);   x = optimizer(x, g)

    Equivalent to large-batch training and to torch's DistributedDataParallel (Gu et al. 2024, Algorithm 1). The engine
    may have averaged the gradients already, during the backward pass.
    """

    def __init__(self, training: Training, options: allreduce.AllReduce) -> None:
        super().__init__(training)

    def after_backward(self) -> None:
        """Average the gradients, or count the engine's average."""
        if self.averaged_by_engine:
            self.transport.count_average(self.workers.grads)
        else:
            self.transport.mean_(self.workers.grads)


build = AllReduce

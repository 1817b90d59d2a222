"""Synchronous data-parallel training."""

from resync.workers.sync.algorithm import Algorithm, Training
from resync.workers.sync.options import all_reduce


class AllReduceAlgorithm(Algorithm):
    """Parallel SGD / AdamW: every step ends with the same parameters on all K workers.

        average gradients:    g = mean_k g_k(x);   x = optimizer(x, g)
        average parameters:   x = mean_k optimizer_k(x, g_k(x))

    The first is equivalent to large-batch training and to torch's DistributedDataParallel (Gu et al. 2024, Algorithm
    1); the engine may have averaged the gradients already, during the backward pass. The second leaves the optimizer's
    state with its worker. It is the baseline of Assran et al. (2019) in their code of May 2019, and the same as the
    first for SGD, also with momentum and weight decay, but not for Adam.
    """

    def __init__(self, training: Training, options: all_reduce.AllReduce) -> None:
        super().__init__(training)
        self.all_reduce, self.averages_gradients = options.all_reduce, options.needs.average_gradients

    @property
    def one_gradient(self) -> bool:
        return self.averages_gradients

    def after_backward(self) -> None:
        if self.averages_gradients:
            self.average_gradients(self.all_reduce)

    def after_step(self, lr: float) -> bool:
        if not self.averages_gradients:
            self.transport.mean_(self.rows, self.all_reduce)
        return super().after_step(lr)


build = AllReduceAlgorithm

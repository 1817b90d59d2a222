"""DES-LOC: Local Adam that averages parameters and moments with different periods."""

from resync.workers.sync.algorithm import Rounds, Training
from resync.workers.sync.fields import average_fields
from resync.workers.sync.options import rounds


class DESLOCAlgorithm(Rounds):
    """Desynced low-communication Adam (Iacob et al. 2025; the order within a step is ours).

        step t = 1, 2, ...:
            every worker: a step of its own Adam, with the gradient at its parameters of now
            x_k = mean over k of x_k   if t is a multiple of `period`, Kx
            u_k = mean over k of u_k   if t is a multiple of `first_moment_period`, Ku
            v_k = mean over k of v_k   if t is a multiple of `second_moment_period`, Kv

    The equations, read second-hand, average at the start of step t and leave open whether the gradient is that of
    before; here everything is averaged at the end of a step, so that the next gradient is at the averaged point. With
    equal periods it is Local Adam with averaged moments. Bias correction is that of the optimizer. The last round is
    truncated to end at `total_steps`, where the moments are averaged only if they are due.

    Where first moments are averaged more often than second ones, a parameter whose gradients have all been 0 at a
    worker gets a first moment u without a second one, and with it a step of up to lr u / eps: rare inputs need an `eps`
    above Adam's default.

    Raises ValueError at the first average of moments if the optimizer has no `exp_avg` and `exp_avg_sq`.
    """

    def __init__(self, training: Training, options: rounds.DESLOC) -> None:
        super().__init__(training, options.rule)
        self.moments = options.moments

    def after_step(self, lr: float) -> bool:
        ended = super().after_step(lr)
        due = [name for name, period in self.moments.items() if self.steps % period == 0]
        average_fields(self.workers, self.optimizer, self.transport, due)
        return ended

    def end_round(self) -> None:
        self.synchronise()


build = DESLOCAlgorithm

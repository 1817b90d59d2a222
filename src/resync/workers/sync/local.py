"""Local SGD and Local AdamW: average the parameters after every round of local steps."""

from resync.workers.sync.algorithm import Rounds, Training
from resync.workers.sync.fields import average_fields
from resync.workers.sync.options import rounds


class Local(Rounds):
    """Local OPT with a period rule (Gu et al. 2024, Algorithm 2; QSR is the power rule with power 2).

        for every round:
            H = period(lr of the round's first step)
            every worker: H optimizer steps on its own gradients
            x_k = mean over k of x_k

    H is fixed within a round, and the last round is truncated to end at `total_steps`. Optimizer state stays with its
    worker, except for the fields named in `average_state`. H follows from the learning rate that the round's first step
    used, so it is known only after that step.

    Raises ValueError at the first average if the optimizer does not have a named field.
    """

    def __init__(self, training: Training, options: rounds.LocalSGD) -> None:
        super().__init__(training, options.rule)
        self.average_state = options.average_state

    def end_round(self) -> None:
        self.synchronise()
        average_fields(self.workers, self.optimizer, self.transport, self.average_state)


build = Local

"""Local SGD and Local AdamW: average the parameters after every round of local steps."""

from resync.sync.algorithm import Training
from resync.sync.fields import average_fields
from resync.sync.options import local
from resync.sync.rounds import Rounds


class Local(Rounds):
    """Local OPT with a period rule (Gu et al. 2024, Algorithm 2; QSR is the power rule with power 2).

        for every round:
            H = period(lr of the round's first step)
            every worker: H optimizer steps on its own gradients
            x_k = mean over k of x_k

    H is fixed in a round and the last round is cut to end at `total_steps`. Optimizer state stays with its worker,
    but for the fields named in `average_state`. H follows from the learning rate that the round's first step really
    used, so it cannot be asked for too early.

    Raises ValueError at the first average for a field that the optimizer does not have.
    """

    def __init__(self, training: Training, options: local.Local) -> None:
        super().__init__(training, options.rule)
        self.average_state = options.average_state

    def end_round(self) -> None:
        """Average the parameters and the named state."""
        self.synchronise()
        average_fields(self.workers, self.optimizer, self.transport, self.average_state)


build = Local

"""Pseudo-Asynchronous Local SGD: local steps, some of which pull a worker to the last average without a gradient."""

import torch

from resync.base.streams import stream
from resync.workers.sync.algorithm import Training
from resync.workers.sync.diloco import DiLoCoAlgorithm
from resync.workers.sync.options import outer


class PALSGDAlgorithm(DiLoCoAlgorithm):
    """DiLoCo with random pulls (Naganuma et al. 2025, arXiv 2504.18454; x is the start of the round, as in DiLoCo).

        before step `start`: x_k = x = optimizer(x, mean over k of g_k(x))
        then every worker in every step, with a coin of its own:
            with probability p: x_k = x_k - (lr strength / p) (x_k - x), and the optimizer's state does not change
            else: an optimizer step with the learning rate lr / (1 - p)
        after every round of H steps: the outer step of DiLoCo

    The optimizer takes a step with lr, which is then made 1 / (1 - p) times as long: the same for every optimizer whose
    step is proportional to the learning rate. The gradient of a worker that is pulled has been computed, as its loss is
    logged, and is dropped. This is the rule, and not the authors' code, which pulls one tensor of the model only, on
    all ranks at once.
    """

    def __init__(self, training: Training, options: outer.PALSGD) -> None:
        super().__init__(training, options)
        self.palsgd = options
        self.anchor = self.rows[:1].clone()  # every step may need it
        self.before = self.rows.clone()

    @torch.no_grad()
    def after_backward(self) -> None:
        """Average the gradients before the first local step; then withhold those of workers that are pulled."""
        self.before.copy_(self.rows)
        if self.steps < self.palsgd.start:
            self.average_gradients()
            return
        first = self.transport.local.start
        pulled = [self._coin(first + index) for index in range(self.workers.num_local)]
        self.pulled = torch.tensor(pulled, device=self.rows.device).unsqueeze(1)
        self.workers.step_only([index for index, is_pulled in enumerate(pulled) if not is_pulled])

    @torch.no_grad()
    def after_step(self, lr: float) -> bool:
        p = self.palsgd.probability
        if p and self.steps >= self.palsgd.start:
            steps = (self.rows - self.before).div_(1 - p)
            pulls = (self.anchor - self.before).mul_(lr * self.palsgd.strength / p)
            self.rows.copy_(self.before.add_(torch.where(self.pulled, pulls, steps)))
        return super().after_step(lr)

    @torch.no_grad()
    def end_round(self) -> None:
        """The outer step; while gradients are averaged, the parameters are the next anchor."""
        if self.steps <= self.palsgd.start:
            self.anchor.copy_(self.rows[:1])
        else:
            super().end_round()

    def _coin(self, worker: int) -> bool:
        draw = stream(self.seed, "pull", worker=worker, epoch=self.steps).random()
        return bool(draw < self.palsgd.probability)


build = PALSGDAlgorithm

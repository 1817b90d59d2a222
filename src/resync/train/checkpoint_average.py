"""Checkpoint averaging: the mean of the last evaluated models in place of the last one."""

import torch
from torch import Tensor


class CheckpointAverage:
    """The newest `number` evaluated consensus models, with their steps (Vaswani et al. 2017, section 6.1).

    With 1, there is no averaging. The model before training is never included.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.models: list[tuple[int, Tensor]] = []

    @torch.no_grad()
    def average_(self, row: Tensor, step: int) -> None:
        """Record the parameters [P] of the consensus model after `step`, once, and overwrite them with the mean."""
        if self.number == 1 or step == 0:
            return
        if step not in dict(self.models):
            self.models = [*self.models, (step, row.clone())][-self.number :]
        row.zero_()
        for _, model in self.models:
            row.add_(model.to(row.device), alpha=1 / len(self.models))

    def state_dict(self) -> dict[str, list[tuple[int, Tensor]]]:
        return {"models": [(step, model.cpu()) for step, model in self.models]}

    def load_state_dict(self, state: dict[str, list[tuple[int, Tensor]]]) -> None:
        self.models = state["models"]

"""Training losses of the workers between two evaluations, and the stop if one is NaN or infinite."""

from typing import Any

import torch
from torch import Tensor

from resync.engine.transport import Transport


class Diverged(Exception):
    """A loss became infinite or NaN; every process raises it at the same step.

    Attributes: `step` (completed steps) and `worker` at which it was first found; `worker` is None if it was found in
    the evaluation of the consensus model.
    """

    def __init__(self, step: int, worker: int | None) -> None:
        where = "in the evaluation of the consensus model" if worker is None else f"on worker {worker}"
        super().__init__(f"the loss is not finite at step {step} {where}")
        self.step = step
        self.worker = worker


class Losses:
    """Sums the losses of k local workers on their device, so that adding never waits for it."""

    def __init__(self, num_local: int, device: torch.device) -> None:
        self.sums = torch.zeros(num_local, dtype=torch.float64, device=device)
        self.count = 0
        self._first_bad = torch.zeros(num_local, dtype=torch.int64, device=device)

    def add(self, losses: Tensor, step: int) -> None:
        """Add the losses [k] of `step`."""
        self.sums += losses
        self.count += 1
        self._first_bad.masked_fill_(~losses.isfinite() & (self._first_bad == 0), step)

    def check(self, transport: Transport) -> None:
        """Raise Diverged on every process if any worker has had a loss that is NaN or infinite."""
        first_bad = transport.gather(self._first_bad)
        bad = first_bad.nonzero().flatten()
        if len(bad):
            worker = int(bad[first_bad[bad].argmin()])
            raise Diverged(int(first_bad[worker]), worker)

    def state_dict(self) -> dict[str, Any]:
        """The sums since the last evaluation, [k] under "workers", and the number of steps in them."""
        return {"count": self.count, "workers": {"sum": self.sums.clone()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]
        self.sums.copy_(state["workers"]["sum"])

    def take_mean(self, transport: Transport) -> float:
        """The mean over all workers and steps since the last call, in nats; resets the sums."""
        total = transport.gather(self.sums).sum().item()
        mean = total / (self.count * transport.num_workers) if self.count else float("nan")
        self.sums.zero_()
        self.count = 0
        return mean

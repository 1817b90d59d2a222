"""Workers on quadratics: worker r minimises 0.5 * ||theta - c_r||^2, so that every recursion can be written out."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from resync.base.settings.options import options_of
from resync.workers.engine.clocks import Clocks
from resync.workers.engine.engine import Engine, EngineParts
from resync.workers.engine.members import Members
from resync.workers.engine.transport import Transport
from resync.workers.engine.workers import Workers
from resync.workers.sync import build
from resync.workers.sync.algorithm import Algorithm, Training

NUMBERED = ["symmetric_exponential", "bipartite_exponential", "linear", "bipartite_linear", "ring", "exponential"]
"""The graphs of the original code of SGP by their numbers there, as its traces name them."""


class Point(nn.Module):
    """A model that is its parameter."""

    def __init__(self, theta: Any, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.tensor(theta, dtype=dtype))

    def forward(self, target: Tensor) -> Tensor:
        """The loss."""
        return 0.5 * ((self.theta - target) ** 2).sum()


class Problem:
    """The workers of a quadratic problem in one process (all of them, unless it is one of several), in float64."""

    def __init__(
        self,
        name: str,
        centres: Any,
        theta0: Any,
        *,
        optimizer: type[torch.optim.Optimizer] = torch.optim.SGD,
        settings: dict[str, Any] | None = None,
        training: dict[str, Any] | None = None,
        rank: int = 0,
        world_size: int = 1,
        **options: Any,
    ) -> None:
        transport = Transport(Members(len(centres), 1, rank, world_size), Clocks(torch.device("cpu")))
        self.centres = [torch.tensor(centre, dtype=torch.float64) for centre in centres[transport.local]]
        self.workers = Workers(Point(theta0), transport.num_local)
        chosen = options_of("sync", name)(**options)
        parameters = self.workers.split() if chosen.needs.separate_optimizer_steps else [self.workers.rows]
        self.optimizer = optimizer(parameters, **({"lr": 0.1} | (settings or {})))
        self.engine = Engine(
            EngineParts(transport, self.workers, self.optimizer, lambda model, target, _: model(target))
        )
        given = Training(self.workers, transport, self.optimizer, **(training or {}))
        self.sync: Algorithm = build(chosen, given)

    @property
    def rows(self) -> np.ndarray:
        """The parameters of this process's workers now, [k, d]."""
        return self.workers.rows.detach().numpy().copy()

    def scatter(self, values: Any) -> None:
        """Give every worker its own start."""
        self.workers.rows.data.copy_(torch.as_tensor(values))

    def gradients(self) -> np.ndarray:
        """`send_ahead`, then the gradient of every worker, [K, d]."""
        self.sync.send_ahead()
        self.engine.gradients(self.centres, self.centres)
        return self.workers.grads.numpy().copy()

    def update(self, still: bool = False) -> bool:
        """The rest of the step; with `still` the gradient is 0."""
        self.sync.after_backward()
        if still:
            self.workers.grads.zero_()
        lr = self.optimizer.param_groups[0]["lr"]
        self.engine.step(lr)
        return self.sync.after_step(lr)

    def step(self, still: bool = False) -> bool:
        """One step; True when it ended a round."""
        self.gradients()
        return self.update(still)

    def consensus(self) -> np.ndarray:
        """The average model, [d]."""
        with self.sync.consensus() as model:
            return model.theta.detach().numpy().copy()

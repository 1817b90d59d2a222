"""Slow momentum on the workers' average, and Lookahead as its single-worker case."""

import torch
from torch import Tensor

from resync.workers.sync import build as build_base
from resync.workers.sync.algorithm import Algorithm, Rounds, Training
from resync.workers.sync.fields import average_fields, moments
from resync.workers.sync.options import outer
from resync.workers.sync.outer import on_device, outer_step_


class SlowMoAlgorithm(Rounds):
    """Slow momentum around a base algorithm (Wang et al. 2020, Algorithm 1).

        for every round of H steps, which starts at x0:
            H steps of the base algorithm: without communication (Local SGD / Adam), or in every step with averaged
                gradients (all-reduce) or gossip (SGP, OSGP)
            x = mean over workers of x_k                         (with `average`)
            u = beta * u + (x0 - x) / gamma
            x = x0 - alpha * gamma * u

    gamma is the learning rate of the round's last step, as in the authors' later implementation in fairscale (the paper
    has one learning rate per round), or of the last one that was not 0. With beta 0 it cancels, and is 1. SlowMo is
    (alpha 1, beta 0.4-0.8); Lookahead is beta 0 with one worker, or without `average` on all-reduce, which keeps the
    workers equal.
    With gossip, averaging receives the messages in flight, averages the numerators, and resets the weights to 1.
    Without `average`, every worker receives its messages and takes the outer step on its own de-biased parameters.
    `buffers` says what happens to the inner optimizer's state before every round: start anew (`zero`), keep it, or
    average it.
    """

    shared = ("gamma",)
    parts = ("base",)

    def __init__(self, training: Training, options: outer.SlowMo) -> None:
        super().__init__(training, options.rule)
        self.options = options
        self.base = build_base(options.inner, training) if options.inner else Algorithm(training)
        # Without outer momentum, gamma cancels, and no learning rate is too small to divide by.
        self.scaled = options.beta > 0
        self.gamma = 1.0
        # With averaging all workers have the same anchor and momentum: one copy per process.
        self.anchor = training.keep(self._outer_rows())
        self.momentum = training.keep(torch.zeros_like(self._outer_rows()))

    @property
    def outer_step_follows_lr(self) -> bool:
        return self.scaled

    @property
    def one_gradient(self) -> bool:
        return self.base.one_gradient

    def send_ahead(self) -> None:
        self.base.send_ahead()

    def after_backward(self) -> None:
        self.base.after_backward()

    def after_step(self, lr: float) -> bool:
        if self.scaled:
            self.gamma = lr or (self.gamma if self.local_steps else 0.0)
        self.base.after_step(lr)
        return super().after_step(lr)

    @torch.no_grad()
    def end_round(self) -> None:
        if self.options.average:
            self.base.synchronise()
        else:
            self.base.receive()
        self._outer_step()
        if self.options.buffers == "zero":
            self.optimizer.state.clear()  # the next step makes it anew
        elif self.options.buffers == "average":
            average_fields(self.workers, self.optimizer, self.transport, moments(self.optimizer))

    def _outer_step(self) -> None:
        if self.gamma == 0:  # no step of the round had a learning rate, so there is nothing to accelerate
            self.anchor.copy_(self._outer_rows())
            return
        alpha, beta = self.options.alpha * self.gamma, self.options.beta
        with on_device(self.rows.device, self.anchor, self.momentum) as (anchor, momentum):
            change = (anchor - self._outer_rows()).div_(self.gamma)
            outer_step_(anchor, momentum, change, lr=alpha, momentum=beta, nesterov=False)
            self.rows.copy_(anchor.expand_as(self.rows))

    def _outer_rows(self) -> Tensor:
        """The parameters of the outer optimizer: one row for all workers, or every worker's own."""
        return self.rows[:1] if self.options.average else self.rows

    def synchronise(self) -> None:
        self.base.synchronise()

    def to_consensus(self, rows: Tensor) -> None:
        self.base.to_consensus(rows)

    def _declared(self, kind: str) -> list[str]:
        outer = ["anchor", "momentum"] if kind == ("shared" if self.options.average else "per_worker") else []
        return super()._declared(kind) + outer


build = SlowMoAlgorithm

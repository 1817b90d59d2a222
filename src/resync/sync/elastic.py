"""A training whose members change: what a newcomer is given, and how a late worker's steps are kept."""

import copy
from typing import Any

import torch
from torch import nn

from resync.engine.elastic_transport import ElasticTransport
from resync.engine.membership import Membership, Resumed
from resync.engine.shards import load_local_state, local_state
from resync.engine.workers import Workers
from resync.errors import UserError
from resync.run.elastic import unfit
from resync.run.parts import SyncOptions
from resync.sync.algorithm import Algorithm


def check_elastic(options: SyncOptions) -> None:
    """Raise UserError for an algorithm whose exchanges cannot go on with fewer members."""
    for found, allowed in unfit(options):
        raise UserError(f"elastic: found {found}, allowed: {allowed}")


class ElasticTraining:
    """An algorithm and its training among members that change; `join` comes first."""

    def __init__(self, model: nn.Module, workers: Workers, algorithm: Algorithm, transport: ElasticTransport) -> None:
        self.model, self.workers, self.algorithm, self.transport = model, workers, algorithm, transport
        self.membership: Membership = transport.membership
        self.samples = self.membership.elastic.samples
        self.membership.capture = self.capture
        self.base = workers.rows.data.clone()

    def join(self) -> None:
        """Meet the others, and start from their state."""
        try:
            self.transport.renew(at_rest=True)
        except Resumed as found:
            self.load(found)
        else:
            self._begin_round()

    def after_backward(self) -> None:
        """As of the algorithm; a late worker's gradient is used with the parameters that it then has."""
        while True:
            self.membership.brings = True
            try:
                self.algorithm.after_backward()
                return
            except Resumed as found:
                self.load(found, with_steps=False)
            finally:
                self.membership.brings = False

    def after_step(self, lr: float) -> bool:
        """As of the algorithm; after a round the members take in newcomers, and a late worker is one of them."""
        try:
            ended = self.algorithm.after_step(lr)
        except Resumed as found:
            self.load(found)
            return True
        if ended:
            self._rest()
        return ended

    def load(self, found: Resumed, with_steps: bool = True) -> None:
        """Take the state of a member, and add the steps of this worker that have not come into it."""
        rows = self.workers.rows.data
        ahead = rows - self.base if with_steps and not found.counted else torch.zeros_like(rows)
        self.restore(found.state)
        rows.add_(ahead)
        self.transport.follow()
        self._begin_round()

    def restore(self, state: dict[str, Any]) -> None:
        """Take what `capture` of another worker, or of this one before, has returned."""
        self.workers.load_state_dict(state["workers"])
        self.algorithm.load_state_dict(state["algorithm"])
        load_local_state(self.algorithm.optimizer, state["optimizer"])
        for each, theirs in zip(self.membership.elastic.state, state["state"], strict=True):
            each.load_state_dict(theirs)
        if self.samples is not None:
            self.samples.load_state_dict(state["samples"])
        self.base.copy_(self.workers.rows.data)

    def _rest(self) -> None:
        self.base.copy_(self.workers.rows.data)
        self.membership.step = self.algorithm.steps
        if self.samples is not None:
            self.samples.end_round(self.membership.members)
        if self.algorithm.rounds % self.membership.elastic.every == 0:
            try:
                self.transport.renew(at_rest=True)
            except Resumed as found:
                self.load(found)
                return
        self._begin_round()

    def _begin_round(self) -> None:
        if self.samples is not None:
            self.samples.begin_round(self.membership.members, self.membership.replica, self.membership.bringing)

    def capture(self) -> dict[str, Any]:
        """What a newcomer needs, with tensors of its own; after a round."""
        parts = self.membership.elastic.state
        state = {
            "workers": self.workers.state_dict(),
            "algorithm": self.algorithm.state_dict(),
            "optimizer": local_state(self.algorithm.optimizer),
            "state": [each.state_dict() for each in parts],
            "samples": None if self.samples is None else self.samples.state_dict(),
            "membership": self.membership.handed_over(),
        }
        return copy.deepcopy(state)

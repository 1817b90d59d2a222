"""Who takes part: torchft's lighthouse and reconfigurable groups, and the state that a member hands to whoever comes.

    members    replicas that have made the newest exchange together, and the newcomers that they have taken in
    rest       the moment after a round, in which members ask for others and hand over their state
    epoch      a set of members, with a process group of its own; counted by all alike

Members meet before an exchange and after it, so that it ends on all of them or on none, up to the loss of its last
message. Whoever finds itself behind, because it is new, was slow, was cut off, or has missed that last message, takes
the state of a member. A member that does not come is slow if its heart answers, and lost if not: torchft's manager
server, which has a thread of its own.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

import torch
from torch import Tensor

from resync.engine.elastic import Elastic
from resync.engine.lighthouse import Found, Lighthouse, beats, own_address
from resync.engine.replica_processes import ReplicaProcesses
from resync.errors import UserError
from resync.run.elastic import away

_CHUNKS = 8
"""Requests in which a state is fetched."""
_SILENT = 0.2
"""The part of `Elastic.timeout` after which the hearts of others are asked, and within which they answer."""


@dataclass(frozen=True)
class Change:
    """A new set of members: after which step of the training, and after which exchange, it begins."""

    epoch: int
    step: int
    exchanges: int
    members: tuple[str, ...]


class Lost(RuntimeError):
    """An exchange that has failed on this member, because another one is lost or late."""


class Resumed(Exception):
    """This replica was behind: it is to take `state`. `counted`: its newest exchange has come into that state."""

    def __init__(self, state: dict[str, Any], counted: bool) -> None:
        super().__init__("the replica takes the state of a member")
        self.state, self.counted = state, counted


class Membership:
    """This replica among the others: it asks the lighthouse, joins the group of an epoch, and serves its state.

    `changes` is the log of members. `capture` returns the state for newcomers, with tensors of its own, at rest. All
    processes of a replica call the same methods, and each is in a group with those of its rank in other replicas.
    Raises UserError without torchft or without a lighthouse.
    """

    def __init__(self, elastic: Elastic) -> None:
        try:
            from torchft.checkpointing.http_transport import HTTPTransport
            from torchft.process_group import ProcessGroupGloo
        except ImportError as error:
            raise UserError("elastic: needs torchft, allowed: install torchft >= 0.2 (make trainers)") from error
        self.elastic = elastic
        self.capture: Callable[[], dict[str, Any]] = dict
        self.processes = ReplicaProcesses()
        if len(names := sorted(set(self.processes.gather(elastic.name)))) > 1:
            raise UserError(f"elastic: name: found {', '.join(names)} in the processes of one torch.distributed, "
                            "allowed: one name, since they are one replica; others have one of their own")  # fmt: skip
        self.replica = self.processes.first(lambda: f"{elastic.name}:{uuid4().hex[:12]}")
        self.members: list[str] = []
        self._hearts: list[str] = []
        self.changes: list[Change] = []
        self.bringing: list[str] = []
        self.exchanges = self.epoch = self.done = self.step = 0
        self.brings = False
        self._attempts: set[int] = set()
        limit = timedelta(seconds=elastic.timeout)
        host = own_address(elastic)
        self._lighthouse = Lighthouse(elastic, self.replica, host) if self.processes.rank == 0 else None
        self._server = HTTPTransport(limit, _CHUNKS)
        self._server._server.RequestHandlerClass.log_message = lambda *line: None  # a line for every chunk
        self._server.allow_checkpoint(-1)  # so that whoever comes too early is told so, and does not wait
        port = self._server._server.socket.getsockname()[1]
        self._addresses = self.processes.gather(f"http://{host}:{port}/checkpoint/")
        self.group = ProcessGroupGloo(timeout=limit)

    @property
    def index(self) -> int:
        return self.members.index(self.replica)

    def close(self) -> None:
        """Leave: the others no longer wait for this replica."""
        if self._lighthouse:
            self._lighthouse.close()
        self._server.shutdown()

    def attempted(self) -> None:
        """Remember that this replica's part of its next exchange may reach members of this epoch."""
        self._attempts.add(self.epoch)

    def completed(self) -> None:
        self.exchanges, self.done = self.exchanges + 1, self.epoch
        self._attempts.clear()

    def renew(self, at_rest: bool) -> None:
        """Find out who takes part from now on, and join their group.

        At rest newcomers are taken in; otherwise the members that are left go on by themselves. Without a lighthouse
        members at rest stay as they are. Raises Resumed if this replica was behind, and TimeoutError.
        """
        deadline = time.monotonic() + self.elastic.wait
        if not at_rest:
            self.group.abort()
        while True:
            found = self.processes.first(lambda: self._ask(at_rest, deadline))
            if found is None:
                return
            self.epoch = 1 + max(each.data["epoch"] for each in found)
            newest = max(each.progress for each in found)
            line = [each for each in found if each.progress == newest] if newest > (0, 0) else found[:1]
            resting = all(each.data["rest"] for each in line)
            if self.replica not in [each.replica for each in line]:
                state = self._fetch(line, found) if resting else None
                if self.processes.all(state is not None) and self._configure(found, line):
                    assert state is not None
                    raise self._resumed(state)
            elif self._go_on(line, found, resting):
                return

    def _go_on(self, line: list[Found], found: list[Found], resting: bool) -> bool:
        """Join the group of all that were found, if those in the line are at rest, or else of the line."""
        together = found if resting else line
        if resting and [each.replica for each in together] == self.members and len(line) == len(found):
            self.epoch -= 1  # nobody came or went
            self.bringing = []
            return True
        if len(together) > len(line):
            self._server.send_checkpoint([], self.epoch, self.capture(), timedelta())
        return self._configure(together, line)

    def _ask(self, at_rest: bool, deadline: float) -> list[Found] | None:
        assert self._lighthouse
        data = {
            "epoch": self.epoch, "done": self.done, "rest": at_rest, "brings": self.brings,
            "heart": self._lighthouse.heart, "addresses": self._addresses,
        }  # fmt: skip
        own = Found(self.replica, self._lighthouse.store, self.exchanges, data)
        return self._lighthouse.ask(own, bool(self.members), deadline)

    def _configure(self, together: list[Found], line: list[Found]) -> bool:
        """Join the group of an epoch; False if somebody did not come."""
        names = [each.replica for each in together]
        self.bringing = [each.replica for each in together if each.data["brings"] and each not in line]
        self.members = names
        self._hearts = [each.data["heart"] for each in together if each.replica != self.replica]
        try:
            self.together(lambda: self._connect(f"{line[0].store}/{self.epoch}/{self.processes.rank}"))
        except Lost:
            self.group.abort()
            self.members = []  # not those of before either: their group has ended
            return False
        self.changes.append(Change(self.epoch, self.step, self.exchanges, tuple(names)))
        return True

    def _connect(self, store: str) -> None:
        if len(self.members) == 1:
            self.group.abort()
            return
        with failures_as_lost():
            self.group.configure(store, self.replica, self.index, len(self.members))
        self.meet(self.epoch)  # the group connects lazily

    def together(self, part: Callable[[], None]) -> None:
        """Do a part of an exchange in all processes of this replica. Raises Lost in all of them if one does."""
        failure = None
        try:
            part()
        except Lost as lost:
            failure = str(lost)
        if not self.processes.all(failure is None):
            raise Lost(failure or "another process of this replica has lost its members")

    def meet(self, number: int) -> None:
        """Wait until all members have come, with the same number. Raises Lost, soon if one is stopped or cut off."""
        if len(self.members) == 1:
            return
        said = torch.zeros(len(self.members), dtype=torch.int64)
        said[self.index] = number
        self.wait(self.post_sum(said))
        if said.unique().numel() > 1:
            raise RuntimeError(f"the members are not in step: they have made {said.tolist()} exchanges, each must make "
                               "the same steps and calls")  # fmt: skip

    def sum_(self, values: Tensor) -> None:
        """The sum over the members, in place. Raises Lost."""
        if len(self.members) > 1 and values.numel():
            with failures_as_lost():
                self.post_sum(values).wait()

    def post_sum(self, values: Tensor) -> Any:
        """The message that makes `values` their sum over the members. Raises Lost."""
        from torch.distributed.distributed_c10d import AllreduceOptions

        with failures_as_lost():
            return self.group.allreduce([values], AllreduceOptions())

    def wait(self, message: Any) -> None:
        """Wait for a message as long as hearts beat. Raises Lost; it may then still write to its tensor, later."""
        limit = timedelta(seconds=_SILENT * self.elastic.timeout)
        deadline = time.monotonic() + self.elastic.timeout
        with failures_as_lost():
            try:
                while not self._has_come(message, limit, deadline):
                    if not all(beats(heart, limit) for heart in self._hearts):
                        raise Lost("a member is silent")
            except RuntimeError:
                # gloo cannot end what is under way, and would wait for it.
                threading.Thread(target=self.group.abort, daemon=True).start()
                self.group = type(self.group)(timeout=timedelta(seconds=self.elastic.timeout))
                raise

    def _has_come(self, message: Any, limit: timedelta, deadline: float) -> bool:
        try:
            message.wait(limit)
        except RuntimeError:
            if message.is_completed() or time.monotonic() > deadline:
                raise
            return False
        return True

    def _fetch(self, line: list[Found], found: list[Found]) -> dict[str, Any] | None:
        """The state of a member, of different ones for different newcomers; None if it does not come in time."""
        newcomers = [each.replica for each in found if each not in line]
        source = line[newcomers.index(self.replica) % len(line)]
        address = source.data["addresses"][self.processes.rank]
        deadline = time.monotonic() + self.elastic.timeout
        while time.monotonic() < deadline:
            try:
                limit = timedelta(seconds=self.elastic.timeout)
                return self._server.recv_checkpoint(0, address, self.epoch, limit)
            except OSError:  # not yet captured, or lost
                time.sleep(0.01)
        return None

    def _resumed(self, state: dict[str, Any]) -> Resumed:
        before, own, exchanges = state.pop("membership"), self.changes[-1], self.exchanges
        self.adopt(before)
        then = [each for each in self.changes if each.exchanges <= exchanges]
        counted = bool(then) and then[-1].epoch in self._attempts
        self.changes.append(Change(own.epoch, self.step, self.exchanges, own.members))
        self.done = before["done"]
        self._attempts.clear()
        return Resumed(state, counted)

    def adopt(self, before: dict[str, Any]) -> None:
        """Continue what `handed_over` has told, as one who is behind all that have made as many exchanges since."""
        self.changes = [Change(*each) for each in before["changes"]]
        self.exchanges, self.step, self.done = before["exchanges"], before["step"], 0
        self.epoch = max([self.epoch, *(each.epoch for each in self.changes)])

    def handed_over(self) -> dict[str, Any]:
        """What a newcomer must know of the members."""
        changes = [astuple(each) for each in self.changes]
        return {"changes": changes, "exchanges": self.exchanges, "step": self.step, "done": self.done}

    def away(self) -> list[tuple[str, int, int | None]]:
        """Who was away: the name, the first step without it, and the step after which it was back, None if never."""
        return away([(each.step, [member.split(":")[0] for member in each.members]) for each in self.changes])


class failures_as_lost:
    """Raise Lost for what a process group raises when a member is lost or late, without a reference to its messages.

    Messages that are still referred to would keep connections open, by which others notice the end of this epoch.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RuntimeError) and not isinstance(error, Lost):
            raise Lost(str(error).split("\n")[0]) from None

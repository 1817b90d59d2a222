"""Who takes part: torchft's lighthouse and reconfigurable groups, and the state that a member hands to whoever comes.

    members    replicas that have made the newest exchange together, and the newcomers that they have taken in
    rest       the moment after a round, in which members ask for others and hand over their state
    epoch      a set of members, with a process group of its own; counted by all alike

Members meet before an exchange and after it, so that it ends on all of them or on none, up to the loss of its last
message. Whoever finds itself behind, because it is new, was slow, was cut off, or has missed that last message, takes
the state of a member. A member that does not come is slow if its heart answers, and lost if not: torchft's manager
server, which has a thread of its own.
"""

import copy
import random
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol
from uuid import uuid4

import torch
from torch import Tensor
from torch.distributed import TCPStore

from resync.errors import UserError
from resync.run.elastic import away

_CHUNKS = 8
"""Requests in which a state is fetched."""
_RENEWED = 0.5
"""Seconds at most after which a newcomer asks again: the lighthouse counts the deadline of slow members from the oldest
request, and would leave out whoever comes later than that."""
_SILENT = 0.2
"""The part of `Elastic.timeout` after which the hearts of others are asked, and within which they answer."""


class Stateful(Protocol):
    """What is handed to a newcomer too, as a learning rate scheduler."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state: Any, /) -> object: ...


class Shares(Protocol):
    """What gives every member its samples (`resync.SharedSamples`)."""

    def end_round(self, survivors: Sequence[str]) -> None: ...

    def begin_round(self, members: Sequence[str], member: str, idle: Sequence[str]) -> None: ...

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state: Any, /) -> object: ...


@dataclass(frozen=True)
class Elastic:
    """How replicas find each other, and how long they wait (docs/robustness.md has the rules).

    Attributes:
        lighthouse: "host:port" of torchft's lighthouse, which must reach all replicas by their address.
        name: the replica's name in the log of members, the same after it comes back; must not contain ":".
        min_replicas: members without which nobody goes on. More than half of all replicas: never two trainings at once.
        replicas: how many begin together; after `timeout` those begin that have come. None: `min_replicas`.
        timeout: seconds that an exchange waits for a slow member before it goes on without it.
        wait: seconds to wait for enough replicas, or for a lighthouse.
        every: rounds between two looks for newcomers.
        state: what newcomers get besides parameters, buffers, optimizer and algorithm: a learning rate scheduler.
        samples: gives each member its samples.
    """

    lighthouse: str
    name: str
    min_replicas: int = 1
    replicas: int | None = None
    timeout: float = 5.0
    wait: float = 600.0
    every: int = 1
    state: Sequence[Stateful] = ()
    samples: Shares | None = None

    def __post_init__(self) -> None:
        for name in ("min_replicas", "every"):
            if getattr(self, name) < 1:
                raise UserError(f"elastic: {name}: found {getattr(self, name)}, allowed: integer >= 1")
        for name in ("timeout", "wait"):
            if not getattr(self, name) > 0:
                raise UserError(f"elastic: {name}: found {getattr(self, name)}, allowed: seconds > 0")
        host, _, port = self.lighthouse.rpartition(":")
        if not host or not port.isdigit():
            raise UserError(f"elastic: lighthouse: found {self.lighthouse!r}, allowed: host:port")
        if not self.name or ":" in self.name:
            raise UserError(f"elastic: name: found {self.name!r}, allowed: text without a colon")


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


@dataclass
class _Found:
    """A replica, as the lighthouse knows it."""

    replica: str
    address: str
    store: str
    exchanges: int
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def progress(self) -> tuple[int, int]:
        return self.exchanges, self.data["done"]


class Membership:
    """This replica among the others: it asks the lighthouse, joins the group of an epoch, and serves its state.

    `changes` is the log of members. `capture` returns the state for newcomers, with tensors of its own, at rest.
    Raises UserError without torchft or without a lighthouse.
    """

    def __init__(self, elastic: Elastic) -> None:
        try:
            from torchft.checkpointing.http_transport import HTTPTransport
            from torchft.coordination import ManagerServer
            from torchft.process_group import ProcessGroupGloo
        except ImportError as error:
            raise UserError("elastic: needs torchft, allowed: install torchft >= 0.2 (make trainers)") from error
        self.elastic = elastic
        self.capture: Callable[[], dict[str, Any]] = dict
        self.replica = f"{elastic.name}:{uuid4().hex[:12]}"
        self.members: list[str] = []
        self._hearts: dict[str, str] = {}
        self.changes: list[Change] = []
        self.bringing: list[str] = []
        self.exchanges = self.epoch = self.done = self.step = 0
        self.brings = False
        self._attempts: set[int] = set()
        limit = timedelta(seconds=elastic.timeout)
        host = _address(elastic)
        # Beats from a thread of its own, which the training does not delay.
        self._heart = ManagerServer(
            self.replica, f"http://{elastic.lighthouse}", host, f"{host}:0", "", 1,
            timedelta(milliseconds=100), limit, 0,
        )  # fmt: skip
        self._store = TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=limit)
        self._store_address = f"{host}:{self._store.port}"
        self._server = HTTPTransport(limit, _CHUNKS)
        self._server._server.RequestHandlerClass.log_message = lambda *line: None  # a line for every chunk
        self._server.allow_checkpoint(-1)  # so that whoever comes too early is told so, and does not wait
        self._address = f"http://{host}:{self._server._server.socket.getsockname()[1]}/checkpoint/"
        self.group = ProcessGroupGloo(timeout=limit)
        self._client: Any = None

    @property
    def index(self) -> int:
        return self.members.index(self.replica)

    def close(self) -> None:
        """Leave: the others no longer wait for this replica."""
        self._heart.shutdown()
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
            found = self._ask(at_rest, deadline)
            if found is None:
                return
            self.epoch = 1 + max(each.data["epoch"] for each in found)
            newest = max(each.progress for each in found)
            line = [each for each in found if each.progress == newest] if newest > (0, 0) else found[:1]
            resting = all(each.data["rest"] for each in line)
            if self.replica not in [each.replica for each in line]:
                if resting and (state := self._fetch(line, found)) is not None and self._configure(found, line):
                    raise self._resumed(state)
            elif self._go_on(line, found, resting):
                return

    def _go_on(self, line: list[_Found], found: list[_Found], resting: bool) -> bool:
        """Join the group of all that were found, if those in the line are at rest, or else of the line."""
        together = found if resting else line
        if resting and [each.replica for each in together] == self.members and len(line) == len(found):
            self.epoch -= 1  # nobody came or went
            self.bringing = []
            return True
        if len(together) > len(line):
            self._server.send_checkpoint([], self.epoch, self.capture(), timedelta())
        return self._configure(together, line)

    def _ask(self, at_rest: bool, deadline: float) -> list[_Found] | None:
        """The replicas of the next epoch by name; None if members at rest find no lighthouse."""
        from torchft.coordination import LighthouseClient

        heart = self._heart.address()
        data = {"epoch": self.epoch, "done": self.done, "rest": at_rest, "brings": self.brings, "heart": heart}
        url, brief, reached = f"http://{self.elastic.lighthouse}", min(_RENEWED, self.elastic.timeout), False
        all_come = time.monotonic() + self.elastic.timeout
        while time.monotonic() < deadline:
            # Whoever asks anew misses an answer now and then, for which the others wait: not in step with their limits.
            wait = self.elastic.timeout if self.members else brief * random.uniform(0.5, 1)
            connected = self._client is not None
            try:
                self._client = self._client or LighthouseClient(url, timedelta(seconds=brief))
                connected = reached = True
                quorum = self._client.quorum(
                    self.replica, timedelta(seconds=wait), self._address, self._store_address, self.exchanges, 1,
                    False, data,
                )  # fmt: skip
            except (RuntimeError, TimeoutError) as error:
                self._client = None
                if connected and isinstance(error, TimeoutError):  # not enough replicas yet, or cut off
                    continue
                if at_rest and self.members:
                    return None
                time.sleep(0.1)
                continue
            found = [_Found(e.replica_id, e.address, e.store_address, e.step, e.data) for e in quorum.participants]
            is_begin = not any(each.exchanges for each in found)
            if is_begin and len(found) < (self.elastic.replicas or 0) and time.monotonic() < all_come:
                time.sleep(0.1)
            elif len(found) >= self.elastic.min_replicas:
                return sorted(found, key=lambda each: each.replica)
        cause = f"fewer than {self.elastic.min_replicas} replicas came" if reached else "no lighthouse answers"
        raise TimeoutError(f"replica {self.elastic.name}: {cause} to {self.elastic.lighthouse} within "
                           f"{self.elastic.wait:g} s")  # fmt: skip

    def _configure(self, together: list[_Found], line: list[_Found]) -> bool:
        """Join the group of an epoch; False if somebody did not come."""
        names = [each.replica for each in together]
        self.bringing = [each.replica for each in together if each.data["brings"] and each not in line]
        self.members, self._hearts = names, {each.replica: each.data["heart"] for each in together}
        try:
            if len(names) > 1:
                self.group.configure(f"{line[0].store}/{self.epoch}", self.replica, self.index, len(names))
                self.meet(self.epoch)  # the group connects lazily
            else:
                self.group.abort()
        except RuntimeError:
            self.group.abort()
            self.members = []  # not those of before either: their group has ended
            return False
        self.changes.append(Change(self.epoch, self.step, self.exchanges, tuple(names)))
        return True

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
        if len(self.members) > 1:
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
                    if silent := self._silent(limit):
                        raise Lost(f"{silent} is silent")
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

    def _silent(self, limit: timedelta) -> str | None:
        """A member whose heart does not answer."""
        from torchft.coordination import ManagerClient

        for replica, heart in self._hearts.items():
            try:
                if replica != self.replica:
                    ManagerClient(heart, limit).should_commit(0, self.exchanges, True, limit)
            except (RuntimeError, TimeoutError):
                return replica
        return None

    def _fetch(self, line: list[_Found], found: list[_Found]) -> dict[str, Any] | None:
        """The state of a member, of different ones for different newcomers; None if it does not come in time."""
        newcomers = [each.replica for each in found if each not in line]
        source = line[newcomers.index(self.replica) % len(line)]
        deadline = time.monotonic() + self.elastic.timeout
        while time.monotonic() < deadline:
            try:
                limit = timedelta(seconds=self.elastic.timeout)
                return self._server.recv_checkpoint(0, source.address, self.epoch, limit)
            except OSError:  # not yet captured, or lost
                time.sleep(0.01)
        return None

    def _resumed(self, state: dict[str, Any]) -> Resumed:
        before = state.pop("membership")
        own = self.changes[-1]
        then = [each for each in before["changes"] if each.exchanges <= self.exchanges]
        counted = bool(then) and then[-1].epoch in self._attempts
        self.changes = [*before["changes"], Change(own.epoch, before["step"], before["exchanges"], own.members)]
        self.exchanges, self.step, self.done = before["exchanges"], before["step"], before["done"]
        self._attempts.clear()
        return Resumed(state, counted)

    def handed_over(self) -> dict[str, Any]:
        """What a newcomer must know of the members."""
        return {"changes": copy.copy(self.changes), "exchanges": self.exchanges, "step": self.step, "done": self.done}

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


def _address(elastic: Elastic) -> str:
    """This machine's address towards the lighthouse, which other replicas reach too."""
    host, _, port = elastic.lighthouse.rpartition(":")
    deadline = time.monotonic() + elastic.wait
    while True:
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=elastic.timeout) as connection:
                return str(connection.getsockname()[0])
        except OSError as error:
            if time.monotonic() > deadline:
                raise UserError(f"elastic: lighthouse: nothing answers at {elastic.lighthouse}: {error}") from error
            time.sleep(0.1)

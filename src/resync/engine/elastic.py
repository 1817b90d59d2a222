"""How replicas find each other, and what a newcomer is given besides what is trained."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from resync.errors import UserError


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
        name: the replica's name in the log of members, the same in all of its processes and after it comes back; must
            not contain ":".
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

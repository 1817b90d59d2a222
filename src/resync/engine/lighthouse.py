"""What a replica says to torchft's lighthouse, and hears from it of the others."""

import random
import socket
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from torch.distributed import TCPStore

from resync.engine.elastic import Elastic
from resync.errors import UserError

_RENEWED = 0.5
"""Seconds at most after which a newcomer asks again: the lighthouse counts the deadline of slow members from the oldest
request, and would leave out whoever comes later than that."""


@dataclass
class Found:
    """A replica, as the lighthouse knows it.

    `data` has its "epoch", the epoch "done" of its newest exchange, whether it is at "rest" and "brings" a gradient,
    the address of its "heart", and by process the "addresses" of its state.
    """

    replica: str
    store: str
    exchanges: int
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def progress(self) -> tuple[int, int]:
        return self.exchanges, self.data["done"]


class Lighthouse:
    """The lighthouse of `elastic`, which knows `replica` by its heart until `close`.

    `store` is the address of a store of this replica, by which the processes of a group can find each other.
    """

    def __init__(self, elastic: Elastic, replica: str, host: str) -> None:
        from torchft.coordination import ManagerServer

        self.elastic, self._replica = elastic, replica
        self._url = f"http://{elastic.lighthouse}"
        # Beats and answers from threads of its own, which the training does not delay.
        self._heart = ManagerServer(
            replica, self._url, host, f"{host}:0", "", 1, timedelta(milliseconds=100),
            timedelta(seconds=elastic.timeout), 0,
        )  # fmt: skip
        self.heart = self._heart.address()
        self._store = TCPStore(
            host, 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=elastic.timeout)
        )
        self.store = f"{host}:{self._store.port}"
        self._client: Any = None

    def close(self) -> None:
        self._heart.shutdown()

    def ask(self, own: Found, is_member: bool, deadline: float) -> list[Found] | None:
        """The replicas of the next epoch by name; None if members at rest find no lighthouse. Raises TimeoutError."""
        from torchft.coordination import LighthouseClient

        elastic, reached = self.elastic, False
        brief = min(_RENEWED, elastic.timeout)
        all_come = time.monotonic() + elastic.timeout
        while time.monotonic() < deadline:
            # Whoever asks anew misses an answer now and then, for which the others wait: not in step with their limits.
            wait = elastic.timeout if is_member else brief * random.uniform(0.5, 1)
            connected = self._client is not None
            try:
                self._client = self._client or LighthouseClient(self._url, timedelta(seconds=brief))
                connected = reached = True
                quorum = self._client.quorum(
                    self._replica, timedelta(seconds=wait), "", own.store, own.exchanges, 1, False, own.data
                )
            except (RuntimeError, TimeoutError) as error:
                self._client = None
                if connected and isinstance(error, TimeoutError):  # not enough replicas yet, or cut off
                    continue
                if own.data["rest"] and is_member:
                    return None
                time.sleep(0.1)
                continue
            found = [Found(each.replica_id, each.store_address, each.step, each.data) for each in quorum.participants]
            is_begin = not any(each.exchanges for each in found)
            if is_begin and len(found) < (elastic.replicas or 0) and time.monotonic() < all_come:
                time.sleep(0.1)
            elif len(found) >= elastic.min_replicas:
                return sorted(found, key=lambda each: each.replica)
        cause = f"fewer than {elastic.min_replicas} replicas came" if reached else "no lighthouse answers"
        raise TimeoutError(f"replica {elastic.name}: {cause} to {elastic.lighthouse} within {elastic.wait:g} s")


def beats(heart: str, limit: timedelta) -> bool:
    """Whether the heart of a replica answers, which that of a stopped or cut-off one does not."""
    from torchft.coordination import ManagerClient

    try:
        ManagerClient(heart, limit).should_commit(0, 0, True, limit)
    except (RuntimeError, TimeoutError):
        return False
    return True


def own_address(elastic: Elastic) -> str:
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

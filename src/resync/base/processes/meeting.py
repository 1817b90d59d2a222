"""All-gathers of texts through torch's store, which end with an error that names whoever does not come."""

import time
from collections.abc import Callable
from datetime import timedelta
from hashlib import sha256
from uuid import uuid4

from resync.base.torch_private import default_store

_LONGEST_WAIT = 0.05
"""Seconds between two looks at the store."""
_BEGINNING = "here", "seen"
_ABSENT = "-"


class StoreAllGather:
    """All-gathers of short texts through the default store; collective calls, in the same order on all ranks.

    Unlike a collective of the back end, one cannot be mistaken for another collective on another rank: a rank waits
    until all others have made the same call, at most for `limit`. `name` tells these calls from others in the store.
    """

    def __init__(self, name: str, rank: int, world_size: int, limit: timedelta) -> None:
        self.name, self.rank, self.world_size, self.limit = name, rank, world_size, limit
        self.held = 0

    def begin(self, call: str) -> None:
        """Come together before the first meeting, however often each rank has tried before.

        Raises TimeoutError as `meet`, after which a rank can begin again.
        """
        if self.world_size == 1:
            return
        store = default_store()
        here, seen = ([f"resync/{self.name}/{kind}/{rank}" for rank in range(self.world_size)] for kind in _BEGINNING)
        store.set(here[self.rank], uuid4().hex)
        tries: list[str] = []

        def missing() -> list[int]:
            nonlocal tries
            now = _values(here)
            if absent := [rank for rank, value in enumerate(now) if value == _ABSENT]:
                return absent
            if now != tries:
                tries = now
                store.set(seen[self.rank], " ".join(tries))
            return [rank for rank, value in enumerate(_values(seen)) if value != " ".join(tries)]

        try:
            self._wait(missing, call)
        except TimeoutError:
            store.set(here[self.rank], _ABSENT)
            raise
        self.name = f"{self.name}/{sha256(' '.join(tries).encode()).hexdigest()}"
        self.meet(call, "")  # all have seen the same
        store.set(here[self.rank], _ABSENT)

    def meet(self, call: str, said: str) -> list[str]:
        """What every rank says, by rank. Raises TimeoutError that names the ranks which did not come in time."""
        if self.world_size == 1:
            return [said]
        store = default_store()
        keys = [self._key(self.held, rank) for rank in range(self.world_size)]
        store.set(keys[self.rank], said)
        self._wait(lambda: [] if store.check(keys) else _missing(keys), call)
        heard = [text.decode() for text in store.multi_get(keys)]
        if self.held:  # all have left the meeting before this one
            store.delete_key(self._key(self.held - 1, self.rank))
        self.held += 1
        return heard

    def _wait(self, missing: Callable[[], list[int]], call: str) -> None:
        """Wait until no rank is missing."""
        # Looks are short and repeated: a wait inside the store would keep the back end from using it.
        deadline, pause = time.monotonic() + self.limit.total_seconds(), 0.0005
        while ranks := missing():
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"rank {self.rank}, {call}: rank {', '.join(map(str, ranks))} did not come within {self.limit}: "
                    "it has ended, made fewer or more steps, or did not make this call"
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_WAIT)

    def _key(self, number: int, rank: int) -> str:
        return f"resync/{self.name}/{number}/{rank}"


def _missing(keys: list[str]) -> list[int]:
    return [rank for rank, key in enumerate(keys) if not default_store().check([key])]


def _values(keys: list[str]) -> list[str]:
    """The values of keys that are never deleted, `_ABSENT` for one that is not there yet."""
    store, absent = default_store(), _missing(keys)
    return [_ABSENT if rank in absent else store.get(key).decode() for rank, key in enumerate(keys)]

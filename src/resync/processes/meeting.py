"""All-gathers of texts through torch's store, which end with an error that names whoever does not come."""

import time
from datetime import timedelta

from resync.torch_private import default_store

_LONGEST_WAIT = 0.05
"""Seconds between two looks at the store."""


class StoreAllGather:
    """All-gathers of short texts through the default store; collective calls, in the same order on all ranks.

    Unlike a collective of the back end, one cannot be mistaken for another collective on another rank: a rank waits
    until all others have made the same call, at most for `limit`. `name` tells these calls from others in the store.
    """

    def __init__(self, name: str, rank: int, world_size: int, limit: timedelta) -> None:
        self.name, self.rank, self.world_size, self.limit = name, rank, world_size, limit
        self.held = 0

    def meet(self, call: str, said: str) -> list[str]:
        """What every rank says, by rank. Raises TimeoutError that names the ranks which did not come in time."""
        if self.world_size == 1:
            return [said]
        # Looks are short and repeated: a wait inside the store would keep the back end from using it.
        store = default_store()
        keys = [self._key(self.held, rank) for rank in range(self.world_size)]
        store.set(keys[self.rank], said)
        deadline, pause = time.monotonic() + self.limit.total_seconds(), 0.0005
        while not store.check(keys):
            if time.monotonic() > deadline:
                absent = [str(rank) for rank, key in enumerate(keys) if not store.check([key])]
                raise TimeoutError(
                    f"rank {self.rank}, {call}: rank {', '.join(absent)} did not come within {self.limit}: it has "
                    "ended, made fewer or more steps, or did not make this call"
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_WAIT)
        heard = [text.decode() for text in store.multi_get(keys)]
        if self.held:  # all have left the meeting before this one
            store.delete_key(self._key(self.held - 1, self.rank))
        self.held += 1
        return heard

    def _key(self, number: int, rank: int) -> str:
        return f"resync/{self.name}/{number}/{rank}"

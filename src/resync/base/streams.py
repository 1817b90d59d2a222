"""Named random streams.

Every random decision of a run uses its own stream, derived from (seed, worker, epoch, purpose), so that no sample
affects another one, and a resumed or differently distributed run gets the same numbers.
"""

import hashlib

import numpy as np


def stream_seed(seed: int, purpose: str, *, worker: int = 0, epoch: int = 0) -> int:
    """A 63-bit seed for the stream of a purpose (e.g. "order", "init"), worker and epoch."""
    name = f"{seed}/{worker}/{epoch}/{purpose}".encode()
    return int.from_bytes(hashlib.sha256(name).digest()[:8], "big") >> 1


def stream(seed: int, purpose: str, *, worker: int = 0, epoch: int = 0) -> np.random.Generator:
    """A NumPy generator for the stream: Philox, whose output does not depend on the platform."""
    return np.random.Generator(np.random.Philox(stream_seed(seed, purpose, worker=worker, epoch=epoch)))

"""Disable garbage collection while a large object graph is built."""

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def all_kept() -> Iterator[None]:
    """Collect no garbage within the block, and do not look later at the objects that exist at its end.

    While a suite of papers is read, or torch is imported, the collector would look again and again at objects that all
    stay, a sixth of the time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        atexit.register(gc.unfreeze)  # the end of the process releases them as ever
        if enabled:
            gc.enable()

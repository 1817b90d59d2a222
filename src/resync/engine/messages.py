"""Messages between processes that are started together."""

from collections.abc import Sequence

import torch.distributed as dist


def start(operations: Sequence[dist.P2POp]) -> list[dist.Work]:
    """Start the messages, the receiving ones first, and return what waits for them.

    gloo sends at once if the other side is ready to receive. Where two processes first post what they send, their
    messages take turns: 20 MB each way over 100 Mbit/s then take 3.3 s instead of 1.8 s.
    """
    if not operations:
        return []
    works: list[dist.Work] = dist.batch_isend_irecv(sorted(operations, key=lambda each: each.op is dist.isend))
    return works

"""Adapters to trainers that own the loop: `resync.integrations.transformers` and `resync.integrations.lightning`.

Each needs its framework (the extras `transformers` and `lightning`), whose data-parallel wrapper it takes
out of the way of an algorithm.
"""

from torch import nn

from resync.engine.shards import is_sharded
from resync.errors import UserError


def refuse_shards(model: nn.Module | None, call: str) -> None:
    """Raise ValueError where a trainer would write what a process has of a sharded model as if it were the whole."""
    if model is not None and any(map(is_sharded, model.parameters())):
        raise UserError(f"{call}: found a sharded model, allowed: whole ones; save each worker with "
                        "torch.distributed.checkpoint, see docs/library.md")  # fmt: skip

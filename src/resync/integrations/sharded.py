"""A worker whose model `fully_shard` has sharded over its processes, in the checkpoints of a trainer."""

from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.optim import Optimizer

from resync.library import Synchronised
from resync.workers.engine.shards import is_sharded, shard_group


def has_shards(model: nn.Module | None) -> bool:
    """Whether this process has shards of the model."""
    return model is not None and any(map(is_sharded, model.parameters()))


def whole_state(model: nn.Module) -> dict[str, Tensor]:
    """The state of the whole model on rank 0, empty elsewhere; a call of all ranks."""
    whole: dict[str, Tensor] = get_model_state_dict(
        model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    return whole


def prepare(model: nn.Module, optimizer: Optimizer) -> None:
    """Give the optimizer a state to load into: torch takes a step without a gradient, so before attaching."""
    get_optimizer_state_dict(model, optimizer)


def save(folder: Path, sync: Synchronised, **more: Any) -> None:
    """Write what a worker continues from, and `more`; a call of all ranks."""
    dcp.save(_state(sync) | more, checkpoint_id=folder, process_group=_group(sync))


def load(folder: Path, sync: Synchronised, **more: Any) -> dict[str, Any]:
    """Continue from what as many workers have saved, of any number of processes each; returns what `more` was.

    `more` has the form of what was saved. Raises FileNotFoundError without it.
    """
    if not folder.exists():
        raise FileNotFoundError(f"{folder}: not found; a training continues from a checkpoint that as many workers "
                                "have saved while it ran")  # fmt: skip
    state = _state(sync) | more
    dcp.load(state, checkpoint_id=folder, process_group=_group(sync))
    set_state_dict(sync.model, sync.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    sync.load_state_dict(state["resync"])
    return {name: state[name] for name in more}


def worker_of(sync: Synchronised) -> tuple[int, int]:
    """The number of this worker, and how many there are."""
    return sync.transport.rank, sync.transport.num_workers


def is_first_of_worker(sync: Synchronised) -> bool:
    """Whether this process is the first one of its worker."""
    return dist.get_rank(_group(sync)) == 0


def _state(sync: Synchronised) -> dict[str, Any]:
    model, optimizer = get_state_dict(sync.model, sync.optimizer)
    return {"model": model, "optimizer": optimizer, "resync": sync.state_dict()}


def _group(sync: Synchronised) -> Any:
    return shard_group(next(parameter for parameter in sync.model.parameters() if is_sharded(parameter)))

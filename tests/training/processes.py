"""Runs a function in several real processes joined by gloo, and ends them whatever happens."""

import gc
import multiprocessing
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

TIMEOUT = 1100


def run_processes(world_size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """The results of `function(rank, world_size, *arguments)` of every rank, in order."""
    # Forked, so that no child imports torch again, nor what its optimizers import on first use; and frozen, so that
    # no child's garbage collection copies all memory that it shares.
    import_module("torch._dynamo")
    gc.freeze()
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        pipes = [context.Pipe(duplex=False) for _ in range(world_size)]
        children = [
            context.Process(target=_child, args=(rank, world_size, Path(folder) / "store", sender, function, arguments))
            for rank, (_, sender) in enumerate(pipes)
        ]
        try:
            for child in children:
                child.start()
            return [_result(rank, receiver) for rank, (receiver, _) in enumerate(pipes)]
        finally:
            for child in children:
                child.kill()
                child.join()


def _result(rank: int, receiver: Connection) -> Any:
    assert receiver.poll(TIMEOUT), f"rank {rank} did not answer within {TIMEOUT} s"
    error, value = receiver.recv()
    assert error is None, f"rank {rank} failed:\n{error}"
    return value


def _child(
    rank: int, world_size: int, store: Path, sender: Connection, function: Callable[..., Any], arguments: Any
) -> None:
    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{store}",
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=TIMEOUT),
        )
        sender.send((None, function(rank, world_size, *arguments)))
        dist.barrier()
        dist.destroy_process_group()
    except Exception:
        sender.send((traceback.format_exc(), None))

"""Memory of a training process: freed tensors are used again."""

import resource

import torch
from processes import run_processes

from resync.base.processes.memory import keep_freed_memory


def _faults(rank: int, world_size: int) -> list[int]:
    """The pages that are mapped by 10 tensors of 16 MiB, before and after."""
    found = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(5):
            tensors = [torch.ones(4 << 20) for _ in range(2)]
            del tensors
        found.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
        keep_freed_memory()
    return found


def test_freed_memory_is_used_again_and_not_mapped_anew():
    """10 tensors of 16 MiB have 40,960 pages of 4 KiB."""
    [[_, _, kept]] = run_processes(1, _faults)
    assert kept < 0.05 * 40_960

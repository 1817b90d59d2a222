"""Memory of a training process: freed tensors are used again."""

import subprocess
import sys

FAULTS = """
import resource, torch
from resync.processes.memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        tensors = [torch.ones(4 << 20) for _ in range(2)]
        del tensors
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

returned = faults()
keep_freed_memory()
faults()
print(returned, faults())
"""


def test_freed_memory_is_used_again_and_not_mapped_anew():
    """10 tensors of 16 MiB have 40,960 pages of 4 KiB."""
    printed = subprocess.run([sys.executable, "-c", FAULTS], check=True, capture_output=True, text=True).stdout
    returned, kept = map(int, printed.split())
    assert kept < 0.05 * returned

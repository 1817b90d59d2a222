"""Gradients on their way into the rows: what is there at the end, and what it costs."""

import subprocess
import sys

import pytest
import torch
from processes import run_processes
from torch import nn

from resync.engine import gradients as module
from resync.engine.clocks import Clocks
from resync.engine.gradients import Gradients
from resync.engine.transport import Transport
from resync.engine.workers import Workers


def net() -> nn.Module:
    """One layer is used twice, and one never."""
    torch.manual_seed(0)
    layer = nn.Linear(8, 8)
    return nn.ModuleDict({"twice": layer, "last": nn.Linear(8, 3, bias=False), "unused": nn.Linear(2, 2)})


def loss_of(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    return model["last"](model["twice"](model["twice"](inputs).relu())).square().mean()


def expected(inputs: list[torch.Tensor]) -> torch.Tensor:
    """What autograd alone adds up."""
    model = net()
    for each in inputs:
        loss_of(model, each).backward()
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in model.parameters()])


def test_the_row_has_what_autograd_adds_up_and_nothing_from_the_step_before():
    workers = Workers(net(), 1)
    gradients = Gradients(workers.gradient_places(0), workers.grads[0])
    workers.grads.fill_(torch.nan)
    batches = [torch.randn(4, 8, generator=torch.Generator().manual_seed(seed)) for seed in range(2)]
    for _ in range(2):
        with gradients.collecting():
            for batch in batches:
                loss_of(workers.models[0], batch).backward()
        assert torch.equal(workers.grads[0], expected(batches))
    for parameter, place in workers.gradient_places(0):
        assert parameter.grad is not None
        assert parameter.grad.data_ptr() == place.data_ptr()


@pytest.mark.parametrize("bucket", [1, 2**20])
def test_buckets_cover_the_row_from_its_end(bucket: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "FIRST_BUCKET", bucket)
    monkeypatch.setattr(module, "BUCKET", bucket)
    workers = Workers(net(), 1)
    started: list[torch.Tensor] = []
    Gradients(workers.gradient_places(0), workers.grads[0], lambda part: started.append(part), 2)
    buckets = list(module._buckets(workers.gradient_places(0), workers.grads[0]))
    assert len(buckets) == (5 if bucket == 1 else 1)
    covered = [part.data_ptr() for _, part in reversed(buckets)]
    assert covered == sorted(covered)
    assert sum(part.numel() for _, part in buckets) == workers.num_parameters
    assert sorted(number for numbers, _ in buckets for number in numbers) == list(range(5))


def _averaged(rank: int, size: int, bucket: int) -> tuple[torch.Tensor, int]:
    module.FIRST_BUCKET = module.BUCKET = bucket
    workers = Workers(net(), 1)
    transport = Transport(size, Clocks(torch.device("cpu")), rank, size)
    gradients = Gradients(workers.gradient_places(0), workers.grads[0], transport.start_sum, size)
    inputs = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(rank))
    with gradients.collecting():
        gradients.last = False
        loss_of(workers.models[0], inputs[0]).backward()
        gradients.last = True
        loss_of(workers.models[0], inputs[1]).backward()
    return workers.grads[0], transport.wire_bytes


@pytest.mark.parametrize("bucket", [1, 2**20])
def test_buckets_are_averaged_once_for_all_micro_batches(bucket: int):
    found = run_processes(2, _averaged, bucket)
    of_rank = [list(torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(rank))) for rank in range(2)]
    mean = (expected(of_rank[0]) + expected(of_rank[1])) / 2
    for row, wire_bytes in found:
        torch.testing.assert_close(row, mean, rtol=1e-6, atol=1e-7)
        assert wire_bytes == row.nbytes
    assert torch.equal(found[0][0], found[1][0])


FAULTS = """
import resource
from resync.processes.memory import keep_freed_memory
keep_freed_memory()
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
block = bytearray(16 << 20)
del block
before = faults()
for _ in range(20):
    block = bytearray(16 << 20)
    del block
print(faults() - before)
"""


def test_freed_memory_is_kept_for_the_next_step():
    """Returned to the system, each of the 20 blocks would cost 4096 page faults."""
    printed = subprocess.run([sys.executable, "-c", FAULTS], check=True, capture_output=True, text=True).stdout
    assert int(printed) < 4096

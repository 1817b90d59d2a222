"""Parts that talk to the device themselves: NCCL, the hook of DDP, clocks."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from resync.workers.engine.clocks import Clocks
from resync.workers.engine.ddp import Ddp
from resync.workers.engine.engine import EngineParts
from resync.workers.engine.members import Members
from resync.workers.engine.transport import Transport
from resync.workers.engine.workers import Workers


@pytest.fixture
def transport(device: torch.device, tmp_path: Path) -> Iterator[Transport]:
    """Of one worker, whose operations go through a process group of one: that of NCCL on a GPU."""
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    one = Transport(Members(1), Clocks(device))
    one.world_size = 2  # it asks torch.distributed only where it has somebody to talk to
    yield one
    dist.destroy_process_group()


def test_the_operations_of_the_transport(transport: Transport, device: torch.device):
    rows = torch.arange(6.0, device=device).reshape(1, 6)
    one_of_two, mean = Transport(Members(2, world_size=2), transport.clocks), rows.clone()
    one_of_two.mean_(mean)
    assert torch.equal(mean, rows / 2)  # the other worker's share is missing
    assert (one_of_two.bytes_sent, one_of_two.wire_bytes) == (rows.nbytes, rows.nbytes)
    assert torch.equal(transport.gather(rows[0, 3:4]), rows[0, 3:4])
    assert torch.equal(transport.sum_(rows[0].clone()), rows[0])
    assert (transport.broadcast(7), transport.broadcast(0.25)) == (7, 0.25)
    assert torch.equal(transport.post(rows, ((0,),)).wait(), rows[None])
    transport.barrier()
    assert transport.clocks.seconds("communication") > 0


def test_gradients_are_averaged_during_the_backward_pass(transport: Transport, device: torch.device):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)).to(device)
    inputs = torch.randn(16, 64, device=device)
    model(inputs).square().mean().backward()
    alone = [parameter.grad.clone() for parameter in model.parameters()]
    workers = Workers(model, 1)
    optimizer = torch.optim.SGD([workers.rows], lr=0.1)
    parts = EngineParts(
        transport, workers, optimizer, lambda forward, x, _: forward(x).square().mean(), may_average=True
    )
    engine = Ddp(parts)
    engine.gradients([inputs], [inputs])
    for parameter, expected in zip(model.parameters(), alone, strict=True):
        torch.testing.assert_close(parameter.grad, expected, rtol=0, atol=1e-7)
    assert transport.wire_bytes == workers.grads.nbytes


def test_clocks_measure_the_device_and_do_not_wait_for_it(device: torch.device):
    clocks = Clocks(device)
    with clocks.measure("step"):
        _work(device)  # what a device does for the first time takes long
    before = clocks.seconds("step")
    begin = time.perf_counter()
    with clocks.measure("step"):
        _work(device)
    waited = time.perf_counter() - begin
    seconds = clocks.seconds("step") - before
    assert 0.01 < seconds < 5
    assert waited < 0.5 * seconds or device.type == "cpu"
    clocks.mark(1)
    with clocks.measure("communication"):
        _work(device)
    clocks.mark(3)
    [lap] = clocks.laps()
    assert 0.01 < lap.communication <= lap.seconds < 5
    assert lap.counts == (2,)
    restarted = Clocks(device)
    restarted.load_state_dict(clocks.state_dict())
    assert restarted.seconds("step") == clocks.seconds("step")


def _work(device: torch.device) -> None:
    """Some hundredths of a second."""
    if device.type == "cuda":
        torch.cuda._sleep(100_000_000)
    else:
        time.sleep(0.02)

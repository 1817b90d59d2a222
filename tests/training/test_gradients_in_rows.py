"""Gradients on their way into the rows: what is there at the end, and what it costs."""

import pytest
import torch
from processes import run_processes
from torch import nn

from resync.workers.engine.clocks import Clocks
from resync.workers.engine.ddp import Ddp
from resync.workers.engine.engine import EngineParts, Gradients
from resync.workers.engine.members import Members
from resync.workers.engine.transport import Transport
from resync.workers.engine.workers import Workers


class Net(nn.ModuleDict):
    """One layer is used twice, and one never."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        layer = nn.Linear(8, 8)
        super().__init__({"twice": layer, "last": nn.Linear(8, 3, bias=False), "unused": nn.Linear(2, 2)})

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self["last"](self["twice"](self["twice"](inputs).relu()))


def loss_of(model: nn.Module, inputs: torch.Tensor, targets: object = None) -> torch.Tensor:
    return model(inputs).square().mean()


def expected(inputs: list[torch.Tensor]) -> torch.Tensor:
    """What autograd alone adds up."""
    model = Net()
    for each in inputs:
        loss_of(model, each).backward()
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in model.parameters()])


@pytest.mark.parametrize("kept", [0, 30, 2**16])
def test_the_row_has_what_autograd_adds_up_and_nothing_from_the_step_before(kept, monkeypatch):
    monkeypatch.setattr("resync.workers.engine.engine.KEPT", kept)
    workers = Workers(Net(), 1)
    gradients = Gradients(workers.gradient_places(0))
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


def _averaged(rank: int, size: int) -> tuple[torch.Tensor, int]:
    """Three gradients by the engine `ddp`, of two micro-batches each, and the bytes on the wire."""
    workers, transport = Workers(Net(), 1), Transport(Members(size, 1, rank, size), Clocks(torch.device("cpu")))
    optimizer = torch.optim.SGD([workers.rows], lr=0.0)
    parts = EngineParts(transport, workers, optimizer, loss_of, may_average=True, micro_batches=2)
    engine = Ddp(parts)
    inputs = torch.randn(8, 8, generator=torch.Generator().manual_seed(rank))
    for _ in range(3):
        engine.gradients([inputs], [inputs])
    return workers.grads[0], transport.wire_bytes


def test_ddp_averages_once_for_all_micro_batches_what_the_loss_reaches():
    found = run_processes(3, _averaged)
    halves = [torch.randn(8, 8, generator=torch.Generator().manual_seed(rank)).chunk(2) for rank in range(3)]
    mean = sum(expected(list(each)) for each in halves) / 6
    for row, wire_bytes in found:
        torch.testing.assert_close(row, mean, rtol=1e-6, atol=1e-7)
        assert wire_bytes == 3 * row.nbytes
        assert torch.equal(row, found[0][0])

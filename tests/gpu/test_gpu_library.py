"""An attached algorithm on a model of two devices, and with what only ends of rounds need in CPU memory."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import resync
from resync.workers.sync.options.base import SyncOptions

METHODS: dict[str, SyncOptions] = {
    "AllReduce": resync.AllReduce(),
    "DESLOC": resync.DESLOC(period=2, first_moment_period=2, second_moment_period=2),
    "GPA": resync.GPA(h=3),
    "DiLoCo": resync.DiLoCo(period=3),
    "DiLoCoProgress": resync.DiLoCoProgress(period=3, reference=0.2),
    "StreamingDiLoCo": resync.StreamingDiLoCo(period=4, fragments=2, delay=1),
    "SlowMo": resync.SlowMo(period=3),
    "Lookahead": resync.Lookahead(period=3),
    "SNOO": resync.SNOO(period=3),
    "NoLoCo": resync.NoLoCo(period=3),
    "PALSGD": resync.PALSGD(period=3, start=3),
}
CPU = torch.device("cpu")


class Pipeline(nn.Module):
    """A layer in bfloat16 on one device, and one in float32 on another."""

    def __init__(self, first: torch.device, second: torch.device) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 2)
        self.first.to(first, torch.bfloat16)
        self.second.to(second)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x.to(self.first.weight)).float()
        found: Tensor = self.second(x.to(self.second.weight.device))
        return found


def _end(method: SyncOptions, first: torch.device, second: torch.device, offload: Any = None) -> list[Tensor]:
    """The parameters after a training, in which the state was loaded again; what is offloaded is where it should be."""
    model = Pipeline(first, second)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    clip = {"clip_norm": 0.5} if method.needs.average_gradients else {}
    sync = resync.attach(model, optimizer, method, total_steps=10, warmup_steps=0, offload=offload, **clip)
    for step in range(10):
        optimizer.zero_grad()
        model(torch.randn(4, 8, generator=torch.Generator().manual_seed(step))).square().mean().backward()
        optimizer.step()
        if step == 4:
            sync.load_state_dict(sync.state_dict())
    for algorithm in sync.algorithms:
        where = [vars(algorithm)[name] for name in ("anchor", "buffer", "momentum", "anchors", "momenta")
                 if name in vars(algorithm) and (name, type(method)) != ("anchor", resync.PALSGD)]  # fmt: skip
        for each in where:
            assert each.device.type == ("cpu" if offload else algorithm.rows.device.type)
            assert each.is_pinned() == (bool(offload) and algorithm.rows.is_cuda)
    with sync.consensus():
        pass
    sync.finish()
    assert [each.device for each in model.parameters()] == [first] * 2 + [second] * 2
    return [each.detach().float().cpu() for each in model.parameters()]


@pytest.mark.parametrize("name", METHODS)
def test_a_model_of_two_devices_trains_as_on_one_and_offloading_changes_no_bit(name: str, device: torch.device):
    device = torch.zeros(1, device=device).device
    found = _end(METHODS[name], CPU, device)
    for own, offloaded in zip(found, _end(METHODS[name], CPU, device, "cpu"), strict=True):
        assert torch.equal(own, offloaded)
    for own, expected in zip(found, _end(METHODS[name], CPU, CPU), strict=True):
        torch.testing.assert_close(own, expected, rtol=0, atol=0.01)

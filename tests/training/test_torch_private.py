"""What we use of torch without a public interface is there, and means what we take it for (`resync.torch_private`)."""

from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from processes import TIMEOUT, run_processes
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel

from resync import torch_private


def _found(rank: int, world_size: int) -> dict[str, Any]:
    cpu = torch.device("cpu")
    model = nn.Linear(4, 4)
    shards = [
        FullyShardedDataParallel(nn.Linear(4, 4), device_id=cpu, use_orig_params=original).parameters()
        for original in (False, True)
    ]
    store = torch_private.default_store()
    store.set("said by 0" if rank == 0 else "said by 1", str(rank))
    dist.barrier()
    return {
        "limit": torch_private.time_limit(cpu),
        "shards": [torch_private.is_shard(each) for parameters in shards for each in parameters],
        "plain": [torch_private.is_shard(each) for each in model.parameters()],
        "said": store.get("said by 1").decode(),
    }


def test_the_store_the_time_limit_and_shards():
    for found in run_processes(2, _found):
        assert found["limit"] == timedelta(seconds=TIMEOUT)
        assert all(found["shards"])
        assert not any(found["plain"])
        assert found["said"] == "1"


@pytest.mark.parametrize("fused", [True, False])
def test_an_optimizer_that_takes_the_loss_scale(fused: bool):
    optimizer = torch.optim.Adam(nn.Linear(1, 1).parameters(), fused=fused)
    assert torch_private.takes_loss_scale(optimizer) == fused
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(optimizer.param_groups[0]["params"][0].sum()).backward()
    found = []
    optimizer.register_step_pre_hook(lambda *_: found.append(getattr(optimizer, "grad_scale", None) is not None))
    scaler.step(optimizer)
    assert found == [fused]  # as `attach` notices it


class Nested(torch.optim.SGD):
    """A step that may raise, may step another optimizer, and then calls that of the base class."""

    other: torch.optim.Optimizer | None = None

    def step(self, closure: Any = None) -> Any:
        if not self.param_groups[0]["lr"]:
            raise ArithmeticError
        if self.other:
            self.other.step()
        return super().step(closure)


def test_a_step_within_a_step_is_told_from_one_after_an_error():
    parameters = list(nn.Linear(1, 1).parameters())
    torch.optim.SGD(parameters)  # torch adds the hooks of a class when the first optimizer of it is made
    one, two = Nested(parameters), Nested(parameters)
    found: list[tuple[str, bool]] = []

    def hook(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        # As in `attach`, the hook is called by torch and asks itself.
        found.append(("one" if optimizer is one else "two", torch_private.is_within_a_step(optimizer)))

    for optimizer in (one, two):
        optimizer.register_step_pre_hook(hook)
    one.param_groups[0]["lr"] = 0.0
    with pytest.raises(ArithmeticError):
        one.step()
    one.param_groups[0]["lr"] = 0.1
    one.other = two
    one.step()
    two_inside = [("two", False), ("two", True)]
    assert found == [("one", False), ("one", False), *two_inside, ("one", True)]

"""Peers' own methods beside ours on one small task: the lines of docs/trainers.md, 'Coming from ...'."""

import os
import re
from collections.abc import Callable, Collection
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from processes import run_processes
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

import resync

PAGE = (Path(__file__).parents[2] / "docs/trainers.md").read_text()
[SECTION] = re.findall(r"## Coming from [^\n]*\n(.*?)\n## ", PAGE, re.DOTALL)
LINES = {there: (peer, here) for peer, there, here in re.findall(r"^\| (\w+) \| `(.+?)` \| `(.+?)`", SECTION, re.M)}
STEPS, W = 18, 5
WARM_UPS = 12, 13, 14, 15
"""Of torch's own test of its averager, test_periodic_model_averager."""
TIMEOUT = timedelta(minutes=10)


@pytest.fixture(scope="module")
def found() -> list[dict[Any, Any]]:
    """By line, the parameters after every step, theirs and ours, on each rank; the processes start once for all."""
    peers = [peer for peer in THEIRS if find_spec(peer)]
    for peer in peers:
        import_module({"accelerate": "accelerate.local_sgd"}.get(peer, peer))  # once, and not in both processes
    return run_processes(2, _train, peers)


@pytest.mark.parametrize("line", LINES)
def test_a_line_of_the_page_trains_as_its_peer(request: pytest.FixtureRequest, line: str):
    pytest.importorskip(LINES[line][0], reason=f"{LINES[line][0]} is not installed: make trainers")
    ranks = [rank[line] for rank in request.getfixturevalue("found")]
    for theirs, ours in ranks:
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)
    apart = np.abs(ranks[0][0] - ranks[1][0]).max(axis=1)
    assert apart.max() > 1e-3
    assert (apart.min() < 1e-12) != ("fragment" in line)  # which are mixed with what a worker has


@pytest.mark.parametrize("warmup", WARM_UPS)
def test_local_sgd_averages_after_the_steps_of_torchs_own_test(found: list[dict[Any, Any]], warmup: int):
    """As there, parameters are set to the rank before every step; where it is due, they are then the ranks' mean."""
    due = [step >= warmup and (step - warmup) % 4 == 0 for step in range(20)]
    for rank in (0, 1):
        assert found[rank][warmup] == [[0.5 if each else rank] for each in due]


def _train(rank: int, size: int, peers: Collection[str]) -> dict[Any, Any]:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size)}
    found: dict[Any, Any] = {warmup: _set_to_the_rank(warmup, rank) for warmup in WARM_UPS}
    for line, (peer, here) in LINES.items():
        if peer in peers:
            found[line] = np.stack(THEIRS[peer](line, rank)), np.stack(_ours(line, here, rank))
    return found


def _task() -> tuple[nn.Sequential, torch.optim.Optimizer]:
    """A net of two halves with as many parameters each, and an optimizer whose state stays with its worker."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Tanh(), nn.Linear(4, 4))).double()
    return model, SGD(model.parameters(), lr=0.1, momentum=0.9)


def _trajectory(
    model: nn.Module, optimizer: Any, rank: int, steps: range = range(STEPS), after: Callable[[], object] = lambda: None
) -> list[np.ndarray]:
    """The parameters after every step, and after what a peer does then."""
    path = []
    for step in steps:
        generator = torch.Generator().manual_seed(100 * rank + step)
        inputs, targets = torch.randn(2, 8, 4, dtype=torch.float64, generator=generator)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        after()
        path.append(_flat(model))
    return path


def _flat(model: nn.Module) -> np.ndarray:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).numpy()


def _method(here: str, warmup: int = W) -> Any:
    return eval(here, {"resync": resync, "Phases": resync.periods.Phases, "W": warmup})


def _ours(line: str, here: str, rank: int) -> list[np.ndarray]:
    model, optimizer = _task()
    path: list[np.ndarray] = []
    if "PostLocalSGD" in line:
        sync = resync.attach(model, optimizer, resync.AllReduce())
        path = _trajectory(model, optimizer, rank, range(W))
        sync.finish()
    sync = resync.attach(model, optimizer, _method(here))
    path += _trajectory(model, optimizer, rank, range(len(path), STEPS))
    if "accelerator" in line:
        sync.finish()
        return [*path, _flat(model)]
    sync.detach()
    return path


def _set_to_the_rank(warmup: int, rank: int) -> list[list[float]]:
    model = nn.Linear(1, 5, bias=False)
    optimizer = SGD(model.parameters(), lr=0.1)
    [here] = [here for line, (_, here) in LINES.items() if line.startswith("PeriodicModelAverager") and "W" in line]
    sync, values = resync.attach(model, optimizer, _method(here, warmup)), []
    for _ in range(20):
        model.weight.detach().fill_(rank)
        sync.take_parameters()
        model.weight.grad = torch.zeros_like(model.weight)
        optimizer.step()
        values.append(model.weight.unique().tolist())
    sync.detach()
    return values


def _torch(line: str, rank: int) -> list[np.ndarray]:
    model, optimizer = _task()
    torchs = {"PeriodicModelAverager": PeriodicModelAverager, "PostLocalSGDOptimizer": PostLocalSGDOptimizer}
    made = eval(line, torchs | {"optimizer": optimizer, "W": W})
    if isinstance(made, PeriodicModelAverager):
        return _trajectory(model, optimizer, rank, after=lambda: made.average_parameters(model.parameters()))
    wrapped = DistributedDataParallel(model)
    state = PostLocalSGDState(None, None, start_localSGD_iter=W, post_local_gradient_allreduce=False)
    wrapped.register_comm_hook(state, post_localSGD_hook)
    return _trajectory(wrapped, made, rank)


def _accelerate(line: str, rank: int) -> list[np.ndarray]:
    from accelerate import Accelerator
    from accelerate.local_sgd import LocalSGD
    from accelerate.state import AcceleratorState

    # A test before this one may have started it without other processes.
    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(*_task())
    with eval(line, {"LocalSGD": LocalSGD, "accelerator": accelerator, "model": model}) as rounds:
        path = _trajectory(model, optimizer, rank, after=rounds.step)
    return [*path, _flat(model)]


def _torchft(line: str, rank: int) -> list[np.ndarray]:
    """With a lighthouse and managers, as its documentation has them."""
    from torchft.coordination import LighthouseServer
    from torchft.local_sgd import DiLoCo, LocalSGD
    from torchft.manager import Manager
    from torchft.process_group import ProcessGroupGloo

    host = "127.0.0.1"
    lighthouse = LighthouseServer(bind=f"{host}:0", min_replicas=2, join_timeout_ms=100) if rank == 0 else None
    address = [lighthouse and lighthouse.address()]
    dist.broadcast_object_list(address)
    store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False)
    limits = {"timeout": TIMEOUT, "quorum_timeout": TIMEOUT, "connect_timeout": TIMEOUT}
    manager = Manager(
        pg=ProcessGroupGloo(timeout=TIMEOUT), load_state_dict=None, state_dict=None, min_replica_size=2,
        use_async_quorum=False, rank=0, world_size=1, store_addr=host, store_port=store.port,
        lighthouse_addr=address[0], replica_id=f"worker{rank}", hostname=host, init_sync=False, **limits,
    )  # fmt: skip
    model, optimizer = _task()
    outer, *outers = (SGD(part.parameters(), lr=0.7, momentum=0.9, nesterov=True) for part in (model, *model))
    names = {"DiLoCo": DiLoCo, "LocalSGD": LocalSGD, "outer": outer, "outers": outers, "halves": model}
    with eval(line, names | {"manager": manager, "model": model, "optimizer": optimizer}):
        path = _trajectory(model, optimizer, rank)
    dist.barrier()
    manager.shutdown()
    return path


THEIRS = {"torch": _torch, "accelerate": _accelerate, "torchft": _torchft}

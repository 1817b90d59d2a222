"""Workers of two processes each, with DDP or FSDP2 inside, of which one worker is lost and comes back."""

import io
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from processes import run_processes
from replicas import replicas
from test_elastic import LR, METHODS, _batch, _model, _written_out
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import resync
from resync.engine.shards import load_local_state, local_state
from resync.errors import UserError

pytest.importorskip("torchft", reason="torchft is not installed: make trainers")

NAMES = "abc"


def _set_up(replica: str, rank: int, folder: Path) -> None:
    """torch.distributed over the two processes of a replica, which may be started again."""
    starts = len(list(folder.glob(f"{replica}.lost")))
    dist.init_process_group("gloo", init_method=f"file://{folder}/{replica}{starts}", rank=rank, world_size=2)


def _attached(process: str, lighthouse: str, method: str, inside: str, **limits: float) -> Any:
    """The model of one of the two processes of a replica, the algorithm, and what takes a step."""
    name, rank = process[0], int(process[1])
    model = _model(name)
    if inside == "fsdp":
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    forward = DistributedDataParallel(model) if inside == "ddp" else model
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    elastic = resync.Elastic(lighthouse, name, min_replicas=2, replicas=3, **limits)
    sync = resync.attach(model, optimizer, METHODS[method], seed=3, elastic=elastic)

    def take_step() -> None:
        inputs, targets = (each.chunk(2)[rank] for each in _batch(name, sync.steps))
        nn.functional.mse_loss(forward(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, sync, take_step


def _train(process: str, lighthouse: str, folder: Path, method: str, inside: str) -> Any:
    """One of the two processes of a replica; those of `b` kill themselves before an exchange, and are started again."""
    name, rank = process[0], int(process[1])
    _set_up(name, rank, folder)
    model, sync, take_step = _attached(process, lighthouse, method, inside, timeout=20, wait=120)
    members, back = sync.elastic.membership, None
    while back is None or members.exchanges < back + 4:
        if name == "b" and sync.steps >= 4 and not (folder / "b.lost").exists():
            dist.barrier()
            (folder / "b.lost").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        take_step()
        if [len(change.members) for change in members.changes[-2:]] == [2, 3]:
            back = members.changes[-1].exchanges
    own = torch.cat([_whole(each).flatten() for each in model.parameters()]).numpy()
    log = [(each.exchanges, "".join(member[0] for member in each.members)) for each in members.changes]
    return own, log, members.exchanges


def _whole(parameter: Any) -> torch.Tensor:
    whole: torch.Tensor = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
    return whole.detach()


@pytest.mark.parametrize("inside", ["ddp", "fsdp"])
@pytest.mark.parametrize("method", ["AllReduce", "LocalSGD", "DiLoCo", "StreamingDiLoCo", "SGP"])
def test_a_lost_worker_of_two_processes_comes_back(method: str, inside: str, tmp_path: Path):
    processes = [f"{name}{rank}" for name in NAMES for rank in (0, 1)]
    with replicas(_train, tmp_path, method, inside) as running:
        running.start(*processes)
        found = running.results(restart=("b0", "b1"))
    _, log, made = found["a0"]
    assert [members for _, members in log] == ["abc", "ac", "abc"]
    expected, _ = _written_out(method, log, made)
    for process in processes:
        own, *rest = found[process]
        assert rest == [log, made]
        np.testing.assert_allclose(own, expected[process[0]], atol=1e-5, rtol=0, err_msg=f"{log}: {process}")


def _one_stops(process: str, lighthouse: str, folder: Path) -> Any:
    """One of the two processes of `b` stops in a round; `a` lets it continue two rounds later."""
    name, rank = process[0], int(process[1])
    _set_up(name, rank, folder)
    model, sync, take_step = _attached(process, lighthouse, "LocalSGD", "ddp", timeout=6)
    members, stopped = sync.elastic.membership, folder / "stopped"

    def all_are_back() -> bool:
        came = [len(change.members) for change in members.changes]
        return came == [3, 2, 3] and members.exchanges > members.changes[-1].exchanges

    while not all_are_back():
        if process == "b1" and sync.steps == 4:
            stopped.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)
        if process == "a0" and len(members.members) == 2 and members.exchanges == members.changes[-1].exchanges + 2:
            os.kill(int(stopped.read_text()), signal.SIGCONT)
        take_step()
    return [_whole(each).numpy() for each in model.parameters()]


def test_a_worker_of_which_one_process_stops_is_a_slow_one(tmp_path: Path):
    with replicas(_one_stops, tmp_path) as running:
        running.start(*(f"{name}{rank}" for name in NAMES for rank in (0, 1)))
        found = running.results()
    for process, parameters in found.items():
        for own, theirs in zip(parameters, found["a0"], strict=True):
            np.testing.assert_array_equal(own, theirs, err_msg=process)


def test_a_group_beside_elastic_is_refused():
    model = _model("a")
    elastic = resync.Elastic("127.0.0.1:1", "a")
    with pytest.raises(UserError, match="group: found one beside elastic="):
        resync.attach(
            model, torch.optim.SGD(model.parameters(), lr=LR), resync.AllReduce(), group="replicate", elastic=elastic
        )


def _other_names(rank: int, world_size: int) -> str:
    model = _model("a")
    elastic = resync.Elastic("127.0.0.1:1", NAMES[rank])
    with pytest.raises(UserError) as found:
        resync.attach(model, torch.optim.SGD(model.parameters(), lr=LR), resync.AllReduce(), elastic=elastic)
    return str(found.value)


def test_replicas_in_one_torch_distributed_are_refused():
    for said in run_processes(2, _other_names):
        assert said.startswith("elastic: name: found a, b in the processes of one torch.distributed, allowed: one name")


def _handed_over(rank: int, world_size: int) -> tuple[np.ndarray, np.ndarray]:
    """The parameters after a second step, of the optimizer itself and of one that was given its state."""
    ends = []
    for hands_over in (False, True):
        model = fully_shard(_model("a"), mesh=init_device_mesh("cpu", (world_size,)))
        optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
        for step in (0, 1):
            if step == 1 and hands_over:
                state = torch.load(_bytes(local_state(optimizer)))
                optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
                load_local_state(optimizer, state)
            inputs, targets = _batch("a", step)
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
            optimizer.zero_grad()
        ends.append(torch.cat([_whole(each).flatten() for each in model.parameters()]).numpy())
    return ends[0], ends[1]


def _bytes(state: Any) -> io.BytesIO:
    """As it is sent: without anything of a process group."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return file


def test_the_state_of_a_sharded_optimizer_goes_on_in_another_process():
    for own, handed in run_processes(2, _handed_over):
        np.testing.assert_array_equal(own, handed)

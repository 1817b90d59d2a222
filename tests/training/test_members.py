"""A worker of several GPUs: the result depends on their number, and not on the processes that they are spread over."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from launched import checkpoints, code_of, finish, launched, metrics
from machine import until
from processes import TIMEOUT, run_processes
from runs import CNN_WITH_BATCH_NORM, VARIANTS, make_run, make_session, outcome, trained, trained_until
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from resync.base.streams import stream_seed
from resync.runs.train.loop import train_to_end
from resync.runs.train.session import Session
from resync.tasks import models
from resync.workers.engine.members import Members

# Two workers of four GPUs: four processes host half of the members of a worker each, two one worker each.
LAYOUT = {"workers": 2, "gpus_per_worker": 4}
QSR = {"name": "local", "period": {"rule": "power", "alpha": 0.15, "power": 2, "h_base": 2}}
NAMES = (
    "allreduce", "allreduce_clipped_micro_batches", "allreduce_fp16", "local_average_state", "qsr", "sgp", "osgp",
    "dpsgd", "adpsgd_jitter", "slowmo_allreduce", "slowmo_osgp_averaged_buffers", "batch_norm", "translation_sgp",
    "streaming_diloco",
)  # fmt: skip
CASES: dict[str, dict[str, Any]] = {name: VARIANTS[name] for name in NAMES} | {
    "allreduce_serial": {"engine": {"name": "serial"}},
    "local_serial": VARIANTS["local"] | {"engine": {"name": "serial"}},
    "sgp_weights_travel": {"sync": {"name": "sgp", "topology": "random"}},
    "qsr_batch_norm": CNN_WITH_BATCH_NORM | {"sync": QSR},
    "local_random_fp16": VARIANTS["local_label_noise_fp16"]
    | {"loss": {"label_noise": 0.1, "mixup": 0.5}, "loss_scale": {"initial": 1e9, "interval": 3}},
}
HALF_PRECISION = ("allreduce_fp16", "local_random_fp16")


def ended(session: Session) -> dict[str, Any]:
    """What a process ended with, and the buffers of its first worker's model."""
    return outcome(session) | {"buffers": buffers(session.workers.models[0]), "engine": session.engine.name}


def buffers(model: nn.Module) -> dict[str, np.ndarray]:
    """As arrays: a tensor from another process would be lost with the process."""
    return {name: buffer.numpy().copy() for name, buffer in model.named_buffers()}


def train_cases(rank: int, world_size: int, folder: Path) -> dict[str, dict[str, Any]]:
    found = {}
    for name, changes in CASES.items():
        session = make_session(folder / name, rank, world_size, **changes | LAYOUT)
        train_to_end(session)
        found[name] = ended(session)
    return found


@pytest.fixture(scope="module")
def trained_on(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, dict[str, Any]]]]:
    """What every process ended with, by number of processes; the processes start once for all cases."""
    folder = tmp_path_factory.mktemp("members")
    return {
        1: [train_cases(0, 1, folder / "w1")],
        **{size: run_processes(size, train_cases, folder / f"w{size}") for size in (2, 4)},
    }


def tolerance(name: str) -> dict[str, float]:
    return {"rtol": 0, "atol": 1e-5 if name in HALF_PRECISION else 1e-6}


@pytest.mark.timeout(3 * TIMEOUT)  # the first one trains all cases
@pytest.mark.parametrize("world_size", [2, 4])
@pytest.mark.parametrize("name", CASES)
def test_any_spread_of_the_members_ends_with_the_same_weights(trained_on, name: str, world_size: int):
    alone, parts = trained_on[1][0][name], [rank[name] for rank in trained_on[world_size]]
    of_a_worker = world_size // 2
    for worker, row in enumerate(alone["rows"]):
        members = parts[worker * of_a_worker : (worker + 1) * of_a_worker]
        assert all(np.array_equal(member["rows"], members[0]["rows"]) for member in members)
        np.testing.assert_allclose(members[0]["rows"][0], row, **tolerance(name))
    assert {part["bytes_sent"] for part in parts} == {alone["bytes_sent"]}
    for key in ("metrics.csv", "steps.csv"):
        for ours, reference in zip(parts[0]["log"][key], alone["log"][key], strict=True):
            # A process divides its loss by its own forward passes, so that fewer of them overflow at a smaller scale.
            for metric in (each for each in reference if "seconds" not in each and each != "loss_scale"):
                expected = pytest.approx(reference[metric], rel=1e-5, abs=10 * tolerance(name)["atol"], nan_ok=True)
                assert ours[metric] == expected, metric


@pytest.mark.timeout(3 * TIMEOUT)
def test_members_are_averaged_during_the_backward_pass_unless_told_otherwise(trained_on):
    assert {name: found["engine"] for name, found in trained_on[4][0].items() if found["engine"] != "ddp"} == {
        "allreduce_serial": "serial",
        "local_serial": "serial",
    }
    assert trained_on[2][0]["qsr"]["engine"] == "serial"


@pytest.mark.timeout(3 * TIMEOUT)
@pytest.mark.parametrize("name", ["sgp", "osgp", "qsr"])
def test_the_processes_of_a_worker_share_its_messages(trained_on, name: str):
    """Together they send what a worker of one process sends, so that a node's link carries no more."""
    [first, second, *_] = (rank[name]["wire_bytes"] for rank in trained_on[4])
    assert first + second == trained_on[2][0][name]["wire_bytes"]


@pytest.mark.timeout(3 * TIMEOUT)
@pytest.mark.parametrize("world_size", [2, 4])
def test_running_statistics_are_those_of_the_first_member(trained_on, world_size: int):
    """However the members are spread; the last evaluation has given them to all processes of the worker."""
    alone = trained_on[1][0]["batch_norm"]["buffers"]
    first_worker = trained_on[world_size][: world_size // 2]
    assert {int(value) for name, value in alone.items() if name.endswith("num_batches_tracked")} == {14}
    for rank in first_worker:
        for name, buffer in alone.items():
            np.testing.assert_allclose(rank["batch_norm"]["buffers"][name], buffer, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["allreduce", "qsr_batch_norm", "local_random_fp16"])
def test_members_take_the_gradients_of_micro_batches(name: str, tmp_path: Path):
    """Only the running statistics of BatchNorm and the streams of dropout tell them apart."""
    micro = {"workers": 2, "micro_batch_size": 8}
    members, parts = (
        trained(0, 1, tmp_path / str(n), CASES[name] | more)["rows"] for n, more in enumerate((LAYOUT, micro))
    )
    assert np.array_equal(members, parts)


def _one_worker(changes: dict[str, Any], folder: Path, rank: int = 0, world_size: int = 1) -> Session:
    return make_session(folder, rank, world_size, **changes | {"workers": 1, "gpus_per_worker": 2})


def test_a_worker_of_two_gpus_is_torchs_ddp(tmp_path: Path):
    """Weights and running statistics, against DistributedDataParallel on halves of the same batches."""
    changes = {**CNN_WITH_BATCH_NORM, "sync": {"name": "allreduce"}, "evaluation": {"bn_batches": 3}}
    weights, statistics = run_processes(2, _ddp_with_buffers, tmp_path / "theirs", changes)[0]
    session = _one_worker(changes, tmp_path / "ours")
    train_to_end(session)
    ours = ended(session)
    np.testing.assert_allclose(ours["rows"][0], weights, rtol=0, atol=1e-6)
    assert set(ours["buffers"]) == set(statistics)
    for name, buffer in statistics.items():
        np.testing.assert_allclose(ours["buffers"][name], buffer, rtol=0, atol=1e-6)


def _ddp_with_buffers(rank: int, world_size: int, folder: Path, changes: dict[str, Any]) -> tuple[np.ndarray, Any]:
    """The plainest loop over halves of the session's batches, with torch's own averages and buffers."""
    session = _one_worker(changes, folder / str(rank))
    run = session.run
    model = models.build(run.model, run.facts["input_shape"], run.facts["num_classes"], stream_seed(run.seed, "init"))
    wrapped = DistributedDataParallel(model, broadcast_buffers=True)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.001)
    for epoch in range(run.epochs):
        batches = session.data.batches(session.sampler, epoch, 0, session.transport.local)
        for step, ([inputs], [targets]) in enumerate(batches):
            optimizer.param_groups[0]["lr"] = session.lr(epoch * run.steps_per_epoch + step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(wrapped(inputs.chunk(2)[rank]), targets.chunk(2)[rank]).backward()
            optimizer.step()
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).numpy()
    return weights, buffers(model)


RESUMED = CNN_WITH_BATCH_NORM | LAYOUT | {"optimizer": {"name": "adamw", "weight_decay": 0.05, "eps": 1e-4}}
STOP = 5


def _whole_and_parts(rank: int, world_size: int, folder: Path) -> dict[str, Any]:
    """A run that is left alone, one that continues on as many processes, and one for others to continue."""
    whole = trained(rank, world_size, folder / "whole", RESUMED)
    for name in ("parts", "moved"):
        trained_until(rank, world_size, folder / name, RESUMED, STOP)
    return {"whole": whole, "parts": trained(rank, world_size, folder / "parts", RESUMED)}


def test_a_checkpoint_has_one_state_per_worker_that_any_spread_continues(tmp_path: Path):
    four = run_processes(4, _whole_and_parts, tmp_path)
    for rank in four:
        assert rank["parts"]["resumed_from"] == [STOP]
        assert np.array_equal(rank["parts"]["rows"], rank["whole"]["rows"])
    [checkpoint] = (tmp_path / "moved" / "checkpoint").iterdir()
    assert sorted(file.name for file in checkpoint.glob("workers*.pt")) == ["workers00000.pt", "workers00001.pt"]
    whole = np.concatenate([four[0]["whole"]["rows"], four[2]["whole"]["rows"]])
    moved = trained(0, 1, tmp_path / "moved", RESUMED)
    assert moved["resumed_from"] == [STOP]
    np.testing.assert_allclose(moved["rows"], whole, rtol=0, atol=1e-6)
    trained_until(0, 1, tmp_path / "back", RESUMED, STOP)
    back = run_processes(4, trained, tmp_path / "back", RESUMED)
    assert back[0]["resumed_from"] == [STOP]
    np.testing.assert_allclose(np.concatenate([back[0]["rows"], back[2]["rows"]]), whole, rtol=0, atol=1e-6)


def test_a_launched_run_stops_and_continues_on_all_gpus_of_its_workers(tmp_path: Path):
    changes = {
        "workers": 2, "gpus_per_worker": 2, "processes": 4, "sync": {"name": "sgp"}, "epochs": 12,
        "evaluation": {"every_epochs": 12}, "checkpoint": {"every_rounds": 8},
        "log": {"every_steps": 4, "wandb": "disabled"},
    }  # fmt: skip
    make_run(tmp_path, **changes)
    with launched(tmp_path) as process:
        until(lambda: checkpoints(tmp_path), process)
        process.terminate()
        assert code_of(process) == os.EX_TEMPFAIL, (tmp_path / "launch.log").read_text()
    assert finish(tmp_path) == 0, (tmp_path / "launch.log").read_text()
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["launch"]["world_size"], summary["launch"]["engine"], summary["steps"]) == (4, "ddp", 84)
    assert summary["resumed_from"]
    alone = trained(0, 1, tmp_path / "alone", changes | {"processes": 1})
    assert float(metrics(tmp_path)[-1]["val_loss"]) == pytest.approx(
        alone["log"]["metrics.csv"][-1]["val_loss"], abs=1e-5
    )


def _alone(rank: int, world_size: int, folder: Path) -> dict[str, np.ndarray]:
    only = {"workers": 1, "gpus_per_worker": 2}
    return {name: trained(rank, world_size, folder / name, VARIANTS[name] | only)["rows"] for name in ("sgp", "local")}


def test_a_single_worker_of_two_processes_exchanges_nothing(tmp_path: Path):
    expected = trained(0, 1, tmp_path / "alone", {"workers": 1})["rows"]
    for rank in run_processes(2, _alone, tmp_path):
        for rows in rank.values():
            np.testing.assert_allclose(rows, expected, rtol=0, atol=1e-6)


def _shards(rank: int, world_size: int, length: int) -> tuple[int, np.ndarray]:
    members = Members(1, 3, rank, world_size)
    rows = torch.arange(float(length)).expand(2, 1, length)
    shard = members.shard(rows)
    padded = nn.functional.pad(shard, (0, members.shard_size(length) - shard.shape[-1]))
    return shard.shape[-1], members.gather(padded.contiguous(), length).numpy()


@pytest.mark.parametrize(("length", "sizes"), [(7, [3, 3, 1]), (4, [2, 2, 0]), (1, [1, 0, 0])])
def test_shards_of_any_length_add_up(length: int, sizes: list[int]):
    found = run_processes(3, _shards, length)
    assert [size for size, _ in found] == sizes
    for _, whole in found:
        assert np.array_equal(whole, np.broadcast_to(np.arange(length), (2, 1, length)))


@pytest.mark.parametrize(("gpus", "world_size"), [(2, 3), (2, 8), (3, 4), (1, 4)])
def test_processes_that_do_not_fit_are_refused(gpus: int, world_size: int):
    workers = "2 workers" if gpus == 1 else f"2 workers of {gpus} GPUs"
    with pytest.raises(ValueError, match=f"^{workers} cannot be spread evenly over {world_size} processes$"):
        Members(2, gpus, rank=0, world_size=world_size)


def test_one_gpu_per_worker_leaves_the_hash_of_a_run_alone(tmp_path: Path):
    usual, one, eight = (
        make_run(tmp_path / name, **changes).hash
        for name, changes in (("usual", {}), ("one", {"gpus_per_worker": 1}), ("eight", {"gpus_per_worker": 8}))
    )
    assert usual == one != eight

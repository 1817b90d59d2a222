"""What a run leaves behind, and how it ends when something is wrong."""

import json
import math
import os
import re
import shutil
import socket
import threading
import time
from contextlib import redirect_stderr, redirect_stdout
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import torch.distributed as dist
from launched import code_of, forked
from machine import until
from processes import run_processes
from runs import QSR, VARIANTS, every, make_run, make_session

from resync.papers.plan import cost
from resync.runs.results.runs import read_run, state_of
from resync.runs.run import Run
from resync.runs.train import train
from resync.runs.train.log import RunLog
from resync.runs.train.loop import batches, train_step, train_to_end
from resync.runs.train.losses import Diverged
from resync.runs.train.saving import resume, save
from resync.tools.cli import main

FINISHED = VARIANTS["batch_norm"] | VARIANTS["qsr"] | {"log": {"every_steps": 5}}
KEY = "5ec2e7" * 6 + "cafe"
SECRETS = ("WANDB_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "NCCL_SECRET", "PASSWORD")
OF_NUMBERS = {
    "ATEN_CPU_CAPABILITY": "default", "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "CUDNN_LOGDEST_DBG": "stderr",
    "DNNL_MAX_CPU_ISA": "SSE41", "KMP_AFFINITY": "none", "MKL_CBWR": "COMPATIBLE", "NCCL_ALGO": "Ring",
    "NCCL_PROTO": "Simple", "NPY_DISABLE_CPU_FEATURES": "AVX512_SPR", "ONEDNN_MAX_CPU_ISA": "SSE41",
    "OPENBLAS_CORETYPE": "Nehalem", "PYTHONHASHSEED": "0",
}  # fmt: skip
"""Variables that choose kernels or the order of sums."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run of QSR with BatchNorm, logged to Weights & Biases offline."""
    folder = tmp_path_factory.mktemp("finished")
    run = make_run(folder, **FINISHED)
    with pytest.MonkeyPatch.context() as patch, (folder / "train.log").open("w") as log:
        for name in [name for name in os.environ if name.startswith(tuple(name[:4] for name in OF_NUMBERS))]:
            patch.delenv(name)
        for name, value in OF_NUMBERS.items() | {(name, KEY) for name in SECRETS}:
            patch.setenv(name, value)
        with redirect_stdout(log), redirect_stderr(log):
            train(run, folder)
    return folder


def test_results_are_complete_and_nothing_else_is_left_nor_a_secret_of_the_shell(finished: Path):
    names = {path.name for path in finished.iterdir()}
    assert names == {
        "config.yaml", "run.yaml", "run.lock", "metrics.csv", "steps.csv", "summary.json",
        "checkpoint", "model.pt", "train.log", "wandb",
    }  # fmt: skip
    files = [path for path in finished.rglob("*") if path.is_file()]
    assert any(path.suffix == ".wandb" for path in files)
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []
    state = torch.load(finished / "model.pt", weights_only=True)  # of the average, with its own statistics
    assert "1.running_mean" in state
    assert sum(value.numel() for value in state.values()) * 4 < (finished / "model.pt").stat().st_size < 40_000


def test_metrics_have_a_row_per_evaluation_and_steps_a_row_per_sample(finished: Path):
    metrics, steps = pd.read_csv(finished / "metrics.csv"), pd.read_csv(finished / "steps.csv")
    assert metrics["step"].tolist() == [0, 7, 14]
    assert metrics["epoch"].tolist() == [0, 1, 2]
    assert math.isnan(metrics["train_loss"][0])
    assert metrics["train_loss"][1:].notna().all()
    assert metrics["val_top1"].between(0, 100).all()
    assert steps["step"].tolist() == [5, 10]
    assert (steps[["step_data_seconds", "step_compute_seconds", "step_communication_seconds"]] >= 0).all().all()


def test_summary_agrees_with_the_plan_and_says_where_it_comes_from(finished: Path):
    summary = json.loads((finished / "summary.json").read_text())
    run = make_run(finished, **FINISHED)
    planned = cost(run, summary["parameters"])
    assert summary["status"] == "finished"
    assert summary["config_hash"] == run.hash
    assert [summary["data"][key] for key in ("name", "variant", "verified")] == ["digits", "digits", "all"]
    assert len(summary["data"]["sha256"]) == 64
    assert summary["rounds"] == planned.rounds < summary["steps"] == 14
    assert summary["bytes_sent"] == planned.bytes_per_worker
    assert summary["volume_percent"] == pytest.approx(planned.volume_percent)
    assert summary["final"]["val_top1"] <= summary["best"]["val_top1"]
    assert summary["launch"]["world_size"] == 1
    assert set(summary["versions"]) >= {"python", "torch", "resync"}
    assert summary["variables"] == OF_NUMBERS


def test_seconds_do_not_follow_a_clock_that_is_set_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    clock = iter(range(10**9, 0, -3600))
    monkeypatch.setattr(time, "time", lambda: float(next(clock)))
    run = make_run(tmp_path, checkpoint={"every_minutes": 1e-4})
    assert train(run, tmp_path)
    read_run(tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert 0 < summary["seconds"]["wall"] < 3600
    assert all(0 <= seconds < 3600 for seconds in summary["seconds"].values())


H3 = every(3)


def slowmo(base: Any, **options: Any) -> dict[str, Any]:
    return {"name": "slowmo", "period": H3, "base": base, **options}


@pytest.mark.parametrize(
    ("sync", "vectors"),
    [
        # Messages that may be late are planned one by one.
        ({"name": "osgp", "staleness": 2}, None),
        ({"name": "osgp", "staleness": 1, "peers": [[0, 2], [1, 0]]}, None),
        (slowmo({"name": "osgp", "staleness": 2}), None),
        (slowmo({"name": "osgp", "staleness": 2}, average=False), None),
        # A base sends in its 14 steps what its own options say, and there are 5 averages.
        (slowmo("sgp"), 14 + 5),
        (slowmo({"name": "sgp", "peers": 2}), 2 * 14 + 5),
        (slowmo("osgp"), 14 + 5),
        (slowmo({"name": "sgp", "peers": [[0, 0], [1, 2]]}), 7 + 2 * 7 + 5),
        # Graphs with idle workers, fragments, and moments with periods of their own.
        ({"name": "dpsgd", "topology": "base_graph"}, None),
        ({"name": "sgp", "topology": "base_graph", "peers": [[0, 2], [1, 1]], "average_state": ["exp_avg"]}, None),
        ({"name": "sgp", "topology": "ou_equidyn"}, None),
        ({"name": "dpsgd", "topology": "random_matching"}, None),
        ({"name": "noloco", "period": H3}, None),
        ({"name": "streaming_diloco", "period": 4, "fragments": 2, "delay": 1}, None),
        ({"name": "streaming_diloco", "period": 4, "fragments": 2, "delay": 1, "first": "period"}, None),
        ({"name": "desloc", "period": 4, "first_moment_period": 3}, None),
        ({"name": "desloc", "period": 2}, None),
        ({"name": "diloco", "period": H3}, 5),
        ({"name": "diloco", "period": H3, "compression": "int8"}, Fraction(5 * 65, 256)),
        ({"name": "streaming_diloco", "period": 4, "fragments": 2, "compression": "bfloat16"}, None),
        ({"name": "diloco_progress", "period": QSR, "reference": 0.2}, None),
        ({"name": "snoo", "period": H3}, 14),
        ({"name": "gpa"}, 14),
        ({"name": "palsgd", "period": H3, "probability": 0.4, "start": 0.5}, None),
    ],
    ids=str,
)
def test_what_is_sent_is_what_is_planned(tmp_path: Path, sync: dict[str, Any], vectors: int | Fraction | None):
    """But for push-sum weights, whose bytes come to less than half a message of any worker, and the last scales."""
    changes = {"workers": 5, "batch_size": 60, "sync": sync, "optimizer": {"name": "adamw"}}
    run, session = make_run(tmp_path / "config", **changes), make_session(tmp_path / "run", **changes)
    train_to_end(session)
    parameters = session.workers.rows.shape[1]
    planned, weights = cost(run, parameters), any(name in str(sync) for name in ("osgp", "slowmo"))
    assert session.sync.rounds == planned.rounds
    tolerance = 2 * parameters / 5 if weights else 4 * planned.rounds if "int8" in str(sync) else 0
    assert session.transport.bytes_sent == pytest.approx(planned.bytes_per_worker, abs=tolerance)
    assert vectors in (None, planned.vectors)


def test_the_last_sharpness_is_among_the_final_values(finished: Path):
    result = read_run(finished)
    assert result.final("sharpness") == result.metrics["sharpness"].iloc[-1]
    best = {"train_loss", "train_top1", "train_top5", "val_loss", "val_top1", "val_top5"}
    own = {"worker_val_loss", "worker_val_top1", "worker_val_top5"}
    best |= {f"{name}_mean" for name in own}
    extremes = {f"{name}_{extreme}" for name in own for extreme in ("min", "max")}
    assert set(result.summary["best"]) == best
    assert set(result.summary["final"]) == best | extremes | {"sharpness", "consensus_distance"}


def test_a_column_that_is_not_declared_is_refused_at_its_first_row(tmp_path: Path):
    log = RunLog(tmp_path, make_run(tmp_path))
    with pytest.raises(ValueError, match=r"metrics.csv: resync.runs.metrics.registry declares no column val_top7"):
        log.evaluation({"step": 0, "epoch": 0.0, "lr": 0.1, "h": 1, "val_top7": 1.0})


def test_finished_run_started_again_changes_nothing(finished: Path, tmp_path: Path):
    before = (finished / "metrics.csv").read_bytes(), (finished / "model.pt").read_bytes()
    train(make_run(finished, **FINISHED), finished)
    assert ((finished / "metrics.csv").read_bytes(), (finished / "model.pt").read_bytes()) == before


def test_diverged_run_ends_as_a_result_that_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = make_run(tmp_path, schedule={"name": "constant", "lr": 1e30}, log={"every_steps": 1, "wandb": "disabled"})
    train(run, tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["status"] == "diverged"
    assert summary["diverged"]["step"] in (2, 3)
    assert f"not finite at step {summary['diverged']['step']} on worker" in capsys.readouterr().out
    assert not (tmp_path / "model.pt").exists()


def test_a_device_that_is_not_there_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    make_run(tmp_path, device="cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["train", "--config", str(tmp_path / "config.yaml"), "--out", str(tmp_path)]) == 2
    assert re.fullmatch(r"resync: error: device is cuda, .*; allowed: auto, cpu\n", capsys.readouterr().err)


def _train_with_others(rank: int, world_size: int, folder: Path, port: int, sync: dict[str, Any]) -> int:
    """A whole run as torchrun starts it; the number of threads that it leaves."""
    dist.barrier()  # or the other rank may still be connecting
    dist.destroy_process_group()
    names = {"RANK": rank, "WORLD_SIZE": world_size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in names.items()})
    before = threading.active_count()
    changes = {"workers": 2, "processes": 2, "sync": sync, "log": {"every_steps": 1, "wandb": "disabled"}}
    train(make_run(folder / f"config{rank}", **changes), folder)
    left = threading.active_count() - before
    store = f"file://{folder}/again"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world_size)
    return left


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.parametrize(
    ("sync", "known"),
    [
        ({"name": "allreduce"}, False),
        ({"name": "adpsgd", "asynchronous": True}, False),
        ({"name": "local", "period": {"rule": "constant", "h": 2}}, True),
    ],
)
def test_communication_that_overlaps_with_computing_is_nan_and_never_0(sync, known, tmp_path: Path):
    assert run_processes(2, _train_with_others, tmp_path, _free_port(), sync) == [0, 0]  # no thread is left
    result = read_run(tmp_path)
    assert (result.summary["status"], result.summary["launch"]["world_size"]) == ("finished", 2)
    trained = result.metrics[result.metrics["step"] > 0]
    times = [trained["communication_seconds"], result.steps["step_communication_seconds"]]
    assert [bool(column.notna().all()) for column in times] == [known] * 2
    assert [bool(column.isna().all()) for column in times] == [not known] * 2
    assert (result.summary["seconds"]["communication"] is None) == (not known)
    for metric in ("communication_seconds", "communication_hours"):
        assert math.isnan(result.final(metric)) == (not known)
    for metric in ("training_seconds", "training_hours", "seconds_per_step"):
        assert result.final(metric) > 0
    seconds = result.summary["seconds"]["training"]
    assert result.final("training_hours") * 3600 == pytest.approx(seconds)
    assert result.final("seconds_per_step") * result.summary["steps"] == pytest.approx(seconds)
    assert (trained["training_seconds"] > 0).all()
    assert (result.steps["step_compute_seconds"] > 0).all()


ASYNCHRONOUS = {
    "workers": 2,
    "processes": 2,
    "sync": {"name": "adpsgd", "asynchronous": True},
    "log": {"every_steps": 1, "wandb": "disabled"},
    "checkpoint": {"every_rounds": 1},
}


def _with_a_straggler(rank: int, world_size: int, folder: Path) -> tuple[list[int], dict[str, Any] | None]:
    """Rank 1 takes its second step when rank 0 is at the end of the epoch; the steps that are saved, and the log."""
    session, ahead = make_session(folder / "run", rank, world_size, **ASYNCHRONOUS), folder / "ahead"

    def after_step() -> None:
        if rank == 0 and session.sync.steps == session.run.steps_per_epoch - 1:
            ahead.touch()
        if rank == 1:
            until(ahead.exists)  # the fast worker does not wait for the slow one

    train_to_end(session, after_step)
    session.sync.close()
    saved = [int(each.name.removeprefix("step")) for each in (folder / "run" / "checkpoint").iterdir()]
    return sorted(saved), session.log.rows if session.log else None


def test_an_asynchronous_run_meets_to_evaluate_and_not_to_log(tmp_path: Path):
    (saved, log), (_, none) = run_processes(2, _with_a_straggler, tmp_path)
    assert saved == [7, 14]
    assert [row["step"] for row in log["steps.csv"]] == list(range(1, 15))
    assert all(math.isfinite(row["step_loss"]) for row in log["steps.csv"])
    assert [row["step"] for row in log["metrics.csv"]] == [0, 7, 14]
    assert none is None


def _diverging(rank: int, world_size: int, folder: Path) -> str:
    session = make_session(folder, rank, world_size, **ASYNCHRONOUS, schedule={"name": "constant", "lr": 1e30})
    with pytest.raises(Diverged) as stop:
        train_to_end(session)
    session.sync.close()
    return str(stop.value)


def test_an_asynchronous_run_that_diverges_ends_on_all_ranks_at_its_evaluation(tmp_path: Path):
    one, two = run_processes(2, _diverging, tmp_path)
    assert one == two
    assert "the loss is not finite at step" in one


def _in_parts(rank: int, world_size: int, folder: Path) -> list[Any]:
    """What each worker publishes before a checkpoint and after the run has been continued from it, and its averages."""
    found = []
    for _ in range(2):
        session = make_session(folder, rank, world_size, **ASYNCHRONOUS)
        resume(session)
        if not found:
            for _, (inputs, targets) in zip(range(5), batches(session), strict=False):
                train_step(session, inputs, targets)
            save(session)
        found.append((session.sync.published.clone().numpy(), int(session.sync.averages), session.sync.steps))
        session.sync.close()
    return found


def test_a_checkpoint_of_an_asynchronous_run_has_every_average(tmp_path: Path):
    for before, after in run_processes(2, _in_parts, tmp_path):
        assert before[1] > 0
        assert before[1:] == after[1:]
        assert (before[0] == after[0]).all()


def test_settings_from_the_command_line_make_a_trial_that_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    declared = make_run(tmp_path)
    command = ["--config", str(tmp_path / "config.yaml"), "--set", "optimizer.weight_decay=0.5", "--set=epochs=1"]
    out = tmp_path / "trial"
    assert main(["train", *command, "--out", str(out)]) == 0
    summary = json.loads((out / "summary.json").read_text())
    assert summary["overrides"] == ["optimizer.weight_decay=0.5", "epochs=1"]
    trial = Run.from_file(out / "run.yaml")
    assert (trial.optimizer.weight_decay, trial.epochs, trial.hash) == (0.5, 1, summary["config_hash"])
    assert state_of(declared, out.parent / "none").status == "not run"
    assert trial.hash != declared.hash
    below = tmp_path / "results" / declared.directory
    for verb in ("train", "launch"):
        assert main([verb, *command, "--out", str(below)]) == 2
        assert "found the folder of the declared run test/small/one/seed3 for one with --set" in capfd.readouterr().err
    shutil.copytree(out, below)  # by hand
    assert state_of(declared, tmp_path / "results").status == "stale"


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["optimizer.weight_decay=much"], "--set optimizer.weight_decay=much: optimizer.weight_decay: found 'much', "),
        (["optimiser.weight_decay=1"], "--set optimiser.weight_decay=1: optimiser: unknown key, allowed: "),
        (["optimizer.weight_decay"], "--set optimizer.weight_decay: allowed: KEY=VALUE, such as"),
        (["workers=3"], "{folder}/config.yaml:1: batch_size: found 64, allowed: a multiple of workers = 3"),
        (["model.hidden=[8"], "--set model.hidden=[8: YAML syntax error: did not find"),
    ],
)  # fmt: skip
def test_a_wrong_setting_from_the_command_line_is_one_line(overrides, expected, tmp_path: Path, capsys):
    make_run(tmp_path)
    flags = [f"--set={override}" for override in overrides]
    assert main(["train", "--config", str(tmp_path / "config.yaml"), "--out", str(tmp_path / "out"), *flags]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("resync: error: " + expected.replace("{folder}", str(tmp_path)))


@pytest.mark.parametrize("verb", ["train", "launch"])
def test_results_of_another_configuration_are_not_overwritten(verb: str, finished: Path, tmp_path: Path, capsys):
    make_run(tmp_path)
    before = (finished / "summary.json").read_bytes()
    assert main([verb, "--config", str(tmp_path / "config.yaml"), "--out", str(finished)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert f"--out {finished}: has results of test/small/one/seed3 with configuration " in line
    assert (finished / "summary.json").read_bytes() == before


def test_a_setting_from_the_command_line_reaches_every_process(tmp_path: Path):
    """A choice of another name brings its own options."""
    make_run(tmp_path, processes=2)
    out = tmp_path / "out"
    flags = ["--set", "sync={name: local, period: {rule: constant, h: 7}}", "--set", "model.hidden=[4]"]
    command = ["launch", "--config", str(tmp_path / "config.yaml"), "--out", str(out), *flags]
    with forked(main, command, log=tmp_path / "log") as process:
        assert code_of(process) == 0, (tmp_path / "log").read_text()
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["rounds"], summary["parameters"]) == (2, 64 * 4 + 4 + 4 * 10 + 10)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"project": "resync", "mode": "offline", "resume": None}),
        ({"wandb": "online"}, {"project": "us", "mode": "online", "resume": "allow"}),
    ],
)
def test_weights_and_biases_gets_the_settings(settings, expected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    given: dict[str, Any] = {}
    monkeypatch.setattr("wandb.init", given.update)
    if settings:
        monkeypatch.setenv("WANDB_PROJECT", "us")
    else:
        monkeypatch.delenv("WANDB_PROJECT", raising=False)
    run = make_run(tmp_path, log={"wandb": "offline"} | settings)
    RunLog(tmp_path, run)
    assert given | expected | {"id": run.hash} == given
    assert run.hash == make_run(tmp_path).hash

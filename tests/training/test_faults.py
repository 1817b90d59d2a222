"""Whatever happens to a run: started again, it ends like one to which nothing happened."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch.distributed as dist
import wandb
from launched import assert_ends_like, checkpoints, code_of, finish, forked, launched, metrics
from machine import program, until
from runs import make_run

from resync.base.errors import UserError
from resync.base.files import write_text
from resync.base.processes import lock, warm_client
from resync.papers.archive.environment import environment
from resync.runs.launch import attempts, slurm
from resync.runs.launch.request import Place, Request
from resync.runs.results import state, wandb_log
from resync.runs.results.runs import read_run
from resync.runs.results.summary import commits, text_of
from resync.runs.run import Run
from resync.runs.train import provenance, train
from resync.runs.train.interrupt import Interruption
from resync.runs.train.watchdog import Watchdog, roll_call_store
from resync.tools.cli import main

CHANGES: dict[str, Any] = {
    "processes": 2,
    "epochs": 12,
    "evaluation": {"every_epochs": 4},
    "checkpoint": {"every_rounds": 8},
    "log": {"every_steps": 4, "wandb": "disabled"},
    "sync": {"name": "sgp"},
}
WITH_WANDB = {"log": {"every_steps": 4, "wandb": "offline"}}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    make_run(folder, **CHANGES)
    assert finish(folder) == 0, (folder / "launch.log").read_text()
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_run(tmp_path, **CHANGES)
    return tmp_path


def assert_same_results(folder: Path, undisturbed: Path) -> dict[str, Any]:
    """The results are complete and those of the other run; nothing half-written is left. Returns the summary."""
    summary = assert_ends_like(folder, undisturbed)
    left = {each.name for each in folder.iterdir() if not each.name.endswith((".log", ".yaml"))}
    assert left == {"checkpoint", "metrics.csv", "model.pt", "run.lock", "steps.csv", "summary.json"}
    assert len(checkpoints(folder)) == len(list((folder / "checkpoint").iterdir())) == 2
    return summary


def listening(*processes: psutil.Process) -> set[str]:
    """The addresses on which others can reach them."""
    connections = [each for process in processes for each in process.net_connections("tcp")]
    found = {each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN}
    assert found
    return found


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, os.EX_TEMPFAIL), (signal.SIGUSR1, os.EX_TEMPFAIL), (signal.SIGINT, 130)]
)
def test_a_signal_ends_in_a_checkpoint_and_an_exit_code_of_its_own(number, code, folder, undisturbed):
    """Ctrl-C comes from a terminal, which sends it to all processes."""
    with launched(folder) as process:
        until(lambda: checkpoints(folder), process)
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        assert code_of(process) == code, (folder / "launch.log").read_text()
    log = (folder / "launch.log").read_text()
    assert "with a checkpoint" in log
    assert log.count("another Ctrl-C ends it at once") == (number == signal.SIGINT)
    assert not (folder / "summary.json").exists()
    stopped = int(checkpoints(folder)[-1].name.removeprefix("step"))
    assert stopped % 4 == 0
    left = state.recorded(folder)
    assert (left.state, left.step) == ("stopped", stopped)
    assert f"stops after step {stopped}" in left.reason
    assert finish(folder) == 0
    assert assert_same_results(folder, undisturbed)["resumed_from"] == [stopped]


def test_ctrl_c_ends_a_run_of_one_process_in_a_checkpoint(tmp_path):
    make_run(tmp_path, **CHANGES | {"processes": 1, "checkpoint": {"every_minutes": 60}, "epochs": 1000})
    with training(tmp_path) as process:
        until(lambda: (tmp_path / "steps.csv.partial").exists(), process)
        os.killpg(process.pid, signal.SIGINT)
        assert code_of(process) == 130
    left = state.recorded(tmp_path)
    assert left.state == "stopped"
    assert left.step == int(checkpoints(tmp_path)[-1].name.removeprefix("step")) > 0
    assert left.reason.startswith("SIGINT: stops after step")
    assert "resync: interrupted" in (tmp_path / "train.log").read_text().splitlines()


@pytest.mark.parametrize("processes", [1, 2])
def test_a_second_ctrl_c_ends_at_once(processes, tmp_path, monkeypatch):
    make_run(tmp_path, **CHANGES | {"processes": processes, "epochs": 1000})
    monkeypatch.setattr(
        "resync.runs.train.run.processes_meet", lambda session: False
    )  # it never comes to an end by itself
    with launched(tmp_path) as process:
        until(lambda: checkpoints(tmp_path), process)
        os.killpg(process.pid, signal.SIGINT)
        until(lambda: "another Ctrl-C" in (tmp_path / "launch.log").read_text(), process)
        os.killpg(process.pid, signal.SIGINT)
        assert code_of(process) == 130
    left = state.recorded(tmp_path)
    assert (left.state, left.reason.partition(":")[0]) == ("stopped", "interrupted at once")
    assert (tmp_path / "launch.log").read_text().splitlines()[-1] == "resync: interrupted"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_cannot_save_when_it_is_asked_to_stop_has_failed(number, folder, monkeypatch):
    """With the exit code of one that has stopped, Slurm would start it again and again."""

    def full(session: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("resync.runs.train.run.save", full)
    with launched(folder, "--max-restarts", "1") as process:
        until(lambda: checkpoints(folder), process)
        process.send_signal(number)
        assert code_of(process) in (1, 2)
    assert state.recorded(folder).state == "failed"
    assert "No space left on device" in state.recorded(folder).reason
    assert "restart" not in (folder / "launch.log").read_text()


def test_a_run_of_many_parts_ends_like_one_of_one_part(tmp_path, monkeypatch):
    """A signal in every step: each job gets no further than one step."""
    changes = {
        "log": {"every_steps": 1, "wandb": "disabled"},
        "sync": {"name": "osgp"},
        "epochs": 1,
        "steps_per_epoch": 10,
    }
    whole, parts = (make_run(tmp_path / name, **changes) for name in ("whole", "parts"))
    assert train(whole, tmp_path / "whole")
    beat = Watchdog.beat
    monkeypatch.setattr(Watchdog, "beat", lambda *given: (beat(*given), os.kill(os.getpid(), signal.SIGUSR1)))
    jobs = 1
    gits = [{"commit": f"{step:040x}", "dirty": step == 3} for step in range(parts.total_steps)]
    monkeypatch.setattr(provenance, "GIT", gits[0])
    while not train(parts, tmp_path / "parts"):
        monkeypatch.setattr(provenance, "GIT", gits[jobs])
        jobs += 1
    assert jobs == parts.total_steps
    summary = assert_same_results(tmp_path / "parts", tmp_path / "whole")
    assert summary["resumed_from"] == list(range(1, jobs))
    assert [job["first_step"] for job in summary["jobs"]] == list(range(jobs))
    assert commits(summary) == gits
    assert environment([summary], {})["commits"] == [git["commit"] for git in gits]
    assert summary["seconds"]["wall"] == sum(job["seconds"] for job in summary["jobs"])
    assert summary["seconds"]["wall"] >= sum(summary["seconds"][clock] for clock in ("training", "evaluation"))
    assert summary["started"] == summary["jobs"][0]["started"]


def test_all_ranks_killed_start_again_by_themselves(folder, undisturbed):
    with launched(folder, "--max-restarts", "1") as process:
        until(lambda: checkpoints(folder), process)
        ranks = process.children()
        assert listening(process, *ranks) & {"0.0.0.0", "::"} == set()
        for rank in ranks:
            rank.kill()
        assert code_of(process) == 0, (folder / "launch.log").read_text()
    assert assert_same_results(folder, undisturbed)["resumed_from"]


@pytest.mark.slow
def test_a_stopped_rank_is_named_by_the_others_and_replaced(folder, undisturbed):
    with launched(folder, "--max-restarts", "1", "--timeout", "20") as process:
        until(lambda: checkpoints(folder), process)
        process.children()[1].suspend()
        assert code_of(process) == 0, (folder / "launch.log").read_text()
    log = (folder / "launch.log").read_text()
    assert "resync: rank 0 ends after step" in log
    assert "no step for 20 s; no answer from rank 1" in log
    assert "in train_to_end" in log  # where it waited
    assert assert_same_results(folder, undisturbed)["resumed_from"]


@pytest.mark.parametrize("joined", [False, True], ids=["before it joins", "while others join"])
def test_a_rank_that_stops_while_the_ranks_join_is_named_within_the_timeout(joined, folder, monkeypatch):
    """Long before torch's own limit of 2 * timeout + 120 s."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for name, value in {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    run = Run.from_file(folder / "config.yaml")

    def rank(index: int) -> int:
        os.environ["RANK"] = str(index)
        if index == 0:
            return 0 if train(run, folder, timeout=2) else 1
        if joined:
            dist.TCPStore("127.0.0.1", port, 2, is_master=False)
        os.kill(os.getpid(), signal.SIGSTOP)
        return 0

    with forked(rank, 1, log=folder / "stopped.log"), forked(rank, 0, log=folder / "launch.log") as waiting:
        assert code_of(waiting) == 1
    reason = "rank 0 ends after step 0: not all ranks have joined after 2 s; no answer from rank 1"
    log = (folder / "launch.log").read_text()
    assert f"resync: {reason}" in log
    assert "in _process_group" in log  # where it waited
    left = state.recorded(folder)
    assert (left.state, left.reason) == ("failed", reason)


def test_the_timeout_holds_when_the_process_that_serves_the_store_is_stopped(tmp_path, monkeypatch):
    port = tmp_path / "port"

    def server() -> int:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        write_text(port, str(store.port))
        os.kill(os.getpid(), signal.SIGSTOP)
        return 0

    def hang() -> None:
        with Watchdog(1, 1, 2, roll_call_store).watching():
            time.sleep(600)

    with forked(server, log=tmp_path / "server.log") as stopped:
        until(lambda: stopped.status() == psutil.STATUS_STOPPED, stopped)
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", port.read_text())
        with forked(hang, log=tmp_path / "log") as process:
            assert code_of(process) == 1
    reason = "not all ranks have joined after 1 s; no answer from the store at 127.0.0.1, which rank 0 or its launcher"
    assert f"resync: rank 1 ends after step 0: {reason} serves" in (tmp_path / "log").read_text()


def test_ranks_end_with_their_killed_launcher_and_the_next_job_goes_on(folder, undisturbed):
    with launched(folder) as process:
        until(lambda: checkpoints(folder), process)
        ranks = process.children()
        process.kill()
        code_of(process)
        until(lambda: not any(rank.is_running() for rank in ranks))
    assert lock.holder(folder) is None
    assert state.recorded(folder).state == "running"  # nobody was left to say otherwise
    assert finish(folder) == 0
    assert assert_same_results(folder, undisturbed)["resumed_from"]


def test_two_jobs_for_a_run_train_it_once(folder, undisturbed):
    """As after a killed Snakemake whose Slurm job lives on, when the next Snakemake submits the run again."""
    with launched(folder) as first:
        until(lambda: lock.holder(folder), first)
        with launched(folder) as second:
            assert lock.holder(folder)["pid"] == first.pid
            assert code_of(first) == 0
            assert code_of(second) == 0
    log = (folder / "launch.log").read_text()
    assert "waiting for the job that trains this run" in log
    assert log.count("has its results in") == 1
    assert assert_same_results(folder, undisturbed)["resumed_from"] == []


def test_results_that_are_deleted_while_they_are_written_are_written_again(folder, undisturbed, monkeypatch):
    """As Snakemake does with those of a fork whose client was killed: in the last attempt the run stayed damaged."""
    with monkeypatch.context() as patch:
        patch.setattr(
            "resync.runs.results.summary.text_of",
            lambda *given: ((folder / "metrics.csv").unlink(), text_of(*given))[1],
        )
        assert finish(folder) == 1
    assert not (folder / "summary.json").exists()
    assert f"{folder}/metrics.csv: deleted while the results were written" in state.recorded(folder).reason
    assert finish(folder) == 0
    assert assert_same_results(folder, undisturbed)["resumed_from"] == [84]


def test_a_start_clears_what_a_job_left_that_was_killed_when_it_had_published(tmp_path, undisturbed):
    folder = shutil.copytree(undisturbed, tmp_path / "run")
    for name in (state.NAME, "metrics.csv.partial"):
        (folder / name).touch()
    assert finish(folder) == 0
    assert assert_same_results(folder, undisturbed)["resumed_from"] == []


def test_what_is_said_of_an_attempt_is_its_own_reason(folder, monkeypatch):
    """Also where it fails before anything is started."""
    state.fail(folder, Run.from_file(folder / "config.yaml"), "the reason of the first attempt")
    (folder / "checkpoint").mkdir()
    (folder / state.ANEW).touch()
    monkeypatch.setattr(attempts, "delete_folder", lambda path: path.joinpath("no", "such").rmdir())
    assert main(["launch", "--config", str(folder / "config.yaml"), "--out", str(folder), "--attempt", "2"]) == 1
    assert state.recorded(folder).reason.startswith("FileNotFoundError: ")


@contextmanager
def held_by_another_job(folder: Path) -> Iterator[Callable[[], object]]:
    """The folder of a run while another job trains it; calling what the block gets ends that."""

    def hold() -> int:
        with lock.locked(folder):
            state.begin(folder, Run.from_file(folder / "config.yaml"))
            until((folder / "end").exists)
        return 0

    with forked(hold, log=folder / "holder.log") as holder:
        until(lambda: lock.holder(folder) and (folder / state.NAME).exists(), holder)
        yield (folder / "end").touch


def training(folder: Path, *flags: str) -> AbstractContextManager[psutil.Process]:
    command = ["train", "--config", str(folder / "config.yaml"), "--out", str(folder), *flags]
    return forked(main, command, log=folder / "train.log")


def test_a_training_that_waits_for_another_job_says_so_and_leaves_no_trace(tmp_path):
    make_run(tmp_path, **CHANGES | {"processes": 1})
    log = tmp_path / "train.log"
    with held_by_another_job(tmp_path), training(tmp_path) as waiting:
        until(lambda: log.exists() and "waiting" in log.read_text(), waiting)
        waiting.send_signal(signal.SIGINT)
        assert code_of(waiting) == 130, log.read_text()
        first, last = log.read_text().splitlines()
        assert f"{tmp_path}/run.lock: waiting for the job that trains this run: {{'host': " in first
        assert last == "resync: interrupted"
        assert state.recorded(tmp_path).state == "running"  # the other job still is


@pytest.mark.parametrize("verb", [training, launched], ids=["train", "launch"])
def test_a_job_that_has_waited_for_one_of_another_configuration_overwrites_nothing(verb, tmp_path, undisturbed):
    make_run(tmp_path, **CHANGES | {"seed": 9})
    log = tmp_path / ("train.log" if verb is training else "launch.log")
    with held_by_another_job(tmp_path) as end, verb(tmp_path) as waiting:
        until(lambda: log.exists() and "waiting" in log.read_text(), waiting)
        for name in ("summary.json", "metrics.csv", "steps.csv", "model.pt"):
            shutil.copy(undisturbed / name, tmp_path)
        end()
        assert code_of(waiting) == 2
    last = log.read_text().splitlines()[-1]
    assert f"resync: error: --out {tmp_path}: has results of test/small/one/seed3 with configuration" in last
    assert (tmp_path / "summary.json").read_text() == (undisturbed / "summary.json").read_text()


def test_truncated_files_are_written_again(tmp_path, undisturbed):
    """As by a file system that lost what it had promised to keep."""
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder)
    newest = checkpoints(folder)[-1]
    for file in [*folder.glob("*.csv"), folder / "summary.json", *newest.glob("*.pt")]:
        os.truncate(file, file.stat().st_size // 2)
    assert finish(folder) == 0, (folder / "launch.log").read_text()
    assert assert_same_results(folder, undisturbed)["resumed_from"] == [80]


def test_a_hang_ends_and_says_where(tmp_path):
    def hang() -> None:
        with Watchdog(timeout=0.4, rank=3, world_size=1, record=(tmp_path / "reason").write_text).watching():
            time.sleep(600)

    with forked(hang, log=tmp_path / "log") as process:
        assert code_of(process) == 1
    log = (tmp_path / "log").read_text()
    assert "in hang" in log
    assert "resync: rank 3 ends after step 0: no step for 0.4 s" in log
    assert (tmp_path / "reason").read_text() == "rank 3 ends after step 0: no step for 0.4 s"


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Callable[[], object]]:
    """A file system of its own in `folder`; calling what the block gets makes space."""
    mount, umount = program("mount", "mount"), program("umount", "mount")
    folder.mkdir()
    command = [mount, "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", folder]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no disk can be mounted here: needs root, in a container with --cap-add=SYS_ADMIN")
    try:
        yield lambda: subprocess.run([mount, "-o", "remount,size=10m", folder], check=True)
    finally:
        subprocess.run([umount, folder], check=True)


def test_a_full_disk_is_named_and_costs_nothing(tmp_path, undisturbed):
    """A file system with room for one checkpoint and a half of two processes; with more space the run goes on."""
    pages = sum(-(-file.stat().st_size // 4096) for file in checkpoints(undisturbed)[0].iterdir())
    disk = tmp_path / "disk"
    with small_disk(disk, 6 * pages + 32) as grow:
        make_run(disk, **CHANGES | {"processes": 1})
        log = tmp_path / "log"
        command = ["launch", "--config", str(disk / "config.yaml"), "--out", str(disk)]
        with forked(main, command, log=log) as process:
            assert code_of(process) == 1
        assert "resync: error: [Errno 28] No space left on device" in log.read_text().splitlines()[-1]
        assert checkpoints(disk)
        grow()
        with forked(main, command, log=log) as process:
            assert code_of(process) == 0
        summary = json.loads((disk / "summary.json").read_text())
        assert summary["resumed_from"]
        assert metrics(disk)[-1]["step"] == "84"


@pytest.mark.slow
def test_ranks_leave_no_temporary_folder(tmp_path):
    """wandb removes its own at the end of the process that has imported it, which a forked rank does not have."""
    make_run(tmp_path / "run", **CHANGES | WITH_WANDB)
    (tmp_path / "temporary").mkdir()
    command = ["launch", "--config", str(tmp_path / "run/config.yaml"), "--out", str(tmp_path / "run")]
    environment = os.environ | {"TMPDIR": str(tmp_path / "temporary")}
    environment.pop(warm_client.ADDRESS, None)
    subprocess.run([sys.executable, "-m", "resync", *command], env=environment, check=True)
    assert not list((tmp_path / "temporary").glob("*wandb*"))


@pytest.mark.slow
def test_a_run_within_a_session_of_wandb_keeps_its_log(tmp_path):
    make_run(tmp_path, **WITH_WANDB)
    outer = tmp_path / "outer"
    outer.mkdir()
    with wandb.init(project="outer", mode="offline", dir=outer, settings=wandb.Settings(silent=True)):
        assert "WANDB_SERVICE" in os.environ
        command = [sys.executable, "-m", "resync", "launch", "--config", "config.yaml", "--out", "."]
        subprocess.run(command, cwd=tmp_path, check=True)
    wandb.teardown()
    assert len(wandb_log.logs(tmp_path)) == 1


def test_a_full_disk_of_wandb_is_named_and_costs_nothing(tmp_path, undisturbed):
    with small_disk(tmp_path / "wandb", 12) as grow:  # a page less than wandb's three files need
        make_run(tmp_path, **CHANGES | WITH_WANDB)
        code, log = finish(tmp_path), (tmp_path / "launch.log").read_text()
        # Which file lacks the page decides whether wandb says so or leaves rows out of its log.
        assert code == 0 or ("No space left on device" in log and not (tmp_path / "summary.json").exists())
        grow()
        assert finish(tmp_path) == 0, (tmp_path / "launch.log").read_text()
        read_run(tmp_path)
        assert metrics(tmp_path) == metrics(undisturbed)


def test_wandb_logs_of_another_configuration_are_deleted(tmp_path):
    """A shorter run would not have their last steps, and could never be published."""
    for epochs in (3, 2):
        run = make_run(tmp_path, **WITH_WANDB, epochs=epochs)
        assert train(run, tmp_path)
        (tmp_path / "summary.json").unlink()
    assert len(wandb_log.logs(tmp_path)) == 1


@pytest.mark.parametrize(
    ("error", "expected", "code"),
    [
        (wandb.errors.UsageError("no key.\nCall login"), "log.wandb: online: no key. Call login", 2),
        (wandb.errors.CommError("Timed out\nConsider"), "log.wandb: online: Timed out", 1),
    ],
)
def test_what_weights_and_biases_refuses_is_one_line_and_no_key_a_mistake(
    error, expected: str, code: int, tmp_path, monkeypatch, capsys
):
    def refused(settings: wandb.Settings, **given: Any) -> None:
        assert settings.init_timeout <= 30
        raise error

    monkeypatch.setattr("wandb.init", refused)
    run = make_run(tmp_path, log={"wandb": "online"})
    assert main(["train", "--config", str(tmp_path / "config.yaml"), "--out", str(tmp_path)]) == code
    assert capsys.readouterr().err == f"resync: error: {expected}\n"
    assert (state.recorded(tmp_path).reason, state.recorded(tmp_path).mistake) == (expected, code == 2)
    assert run.hash == state.recorded(tmp_path).config_hash


def test_a_launch_below_the_torchrun_of_another_program_has_processes_of_its_own(folder, monkeypatch):
    for name, value in {"TORCHELASTIC_RUN_ID": "another", "RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    assert finish(folder) == 0, (folder / "launch.log").read_text()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"device": "cuda"}, "device is cuda, but torch finds no CUDA device here"),
        ({"data": {"name": "mnist"}, "model": {"name": "mlp", "hidden": [8]}}, "RESYNC_DATA"),
    ],
)
def test_a_mistake_is_one_line_before_training(changes, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("RESYNC_DATA", raising=False)
    make_run(tmp_path, **changes)
    assert main(["launch", "--config", str(tmp_path / "config.yaml"), "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "summary.json").exists()
    left = state.recorded(tmp_path)
    assert left.state == "failed"
    assert message in left.reason


def test_ranks_that_were_killed_leave_what_their_launcher_knows(folder):
    with launched(folder) as process:
        until(lambda: checkpoints(folder), process)
        for rank in process.children():
            rank.kill()
        assert code_of(process) == 1
    left = state.recorded(folder)
    assert (left.state, left.reason) == ("failed", "its processes ended with exit code 1")


def test_a_rank_that_waits_for_one_that_was_killed_ends_when_it_is_told_to(folder, monkeypatch):
    """Otherwise torch's launcher would wait for half a minute before it kills the rank."""
    join = dist.init_process_group

    def killed(*given: Any, rank: int, **named: Any) -> None:
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        join(*given, rank=rank, **named)

    monkeypatch.setattr(dist, "init_process_group", killed)
    assert finish(folder) == 1
    log = (folder / "launch.log").read_text()
    assert "rank 1 ended with exit code -9" in log
    assert "forcefully exiting via" not in log


def others_of_this_rank() -> list[psutil.Process]:
    found = [each for each in psutil.Process(os.getppid()).children() if each.pid != os.getpid()]
    return [each for each in found if each.status() != psutil.STATUS_ZOMBIE]


def test_a_rank_that_has_finished_ends_while_another_publishes(folder, undisturbed, monkeypatch):
    """As long as it lived, it could be killed, and a launcher that waits for it would wait forever."""
    clear = state.clear
    monkeypatch.setattr(state, "clear", lambda out: (until(lambda: not others_of_this_rank()), clear(out)))
    assert finish(folder) == 0, (folder / "launch.log").read_text()
    assert_same_results(folder, undisturbed)


def test_a_rank_that_publishes_when_another_is_killed_ends_as_soon_as_it_has_published(
    folder, undisturbed, monkeypatch
):
    asked: list[int] = []
    remember, clear, leave = Interruption._remember, state.clear, dist.destroy_process_group

    def publish(out: Path) -> None:
        for each in others_of_this_rank():
            each.kill()
        until(lambda: asked)
        clear(out)

    monkeypatch.setattr(Interruption, "_remember", lambda *given: (asked.append(given[1]), remember(*given)))
    monkeypatch.setattr(state, "clear", publish)
    monkeypatch.setattr(dist, "destroy_process_group", lambda: leave() if os.environ["RANK"] == "0" else signal.pause())
    assert finish(folder) == 1
    log = (folder / "launch.log").read_text()
    assert "rank 1 ended with exit code -9" in log
    assert "is killed: it has not ended" not in log
    assert "forcefully" not in log
    assert_same_results(folder, undisturbed)


def test_a_rank_that_does_not_end_when_it_is_told_to_is_killed(folder, monkeypatch):
    def failed(*given: Any) -> None:
        if os.environ["RANK"] == "0":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            (folder / "deaf").touch()
            signal.pause()
        until((folder / "deaf").exists)
        raise UserError("it does not fit")

    monkeypatch.setattr("resync.runs.train.run.resume", failed)
    monkeypatch.setattr("resync.runs.launch.fork._GRACE_SECONDS", 0.5)
    assert finish(folder) == 2
    log = (folder / "launch.log").read_text()
    assert "resync: rank 0 is killed: it has not ended within 0.5 s" in log
    assert "resync: error: it does not fit" in log


def test_another_step_of_a_job_uses_another_port(monkeypatch):
    """So a port that somebody else has taken costs one attempt."""
    answers = {"hostnames": "a07\na08\n", "node": "NodeName=a07 Arch=x86_64\n   NodeAddr=10.1.0.7 NodeHostName=a07\n"}
    monkeypatch.setattr(slurm, "_ask", lambda *command: answers[command[2]])
    variables = {"SLURM_JOB_ID": "4711", "SLURM_NODEID": "1", "SLURM_STEP_NODELIST": "a[07-08]"}
    places = []
    for step in ("0", "1"):
        for name, value in (variables | {"SLURM_STEP_ID": step}).items():
            monkeypatch.setenv(name, value)
        places.append(slurm.place())
    assert (places[0].hosts, places[0].index, places[0].address) == (("a07", "a08"), 1, "10.1.0.7")
    assert places[0].port != places[1].port
    assert all(20000 <= each.port < 32768 for each in places), "Linux gives those above to outgoing connections"


def test_what_slurm_says_is_one_line_and_worth_another_attempt(folder, tmp_path, monkeypatch, capsys):
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho 'Socket timed out on send/recv operation' >&2; exit 1\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    for name, value in {"SLURM_STEP_NODELIST": "a[07-08]", "SLURM_STEP_ID": "0", "SLURM_NODEID": "0"}.items():
        monkeypatch.setenv(name, value)
    assert main(["launch", "--config", str(folder / "config.yaml"), "--out", str(folder), "--on-node"]) == 1
    expected = "resync: error: scontrol show hostnames a[07-08]: Socket timed out on send/recv operation"
    assert capsys.readouterr().err.splitlines() == [expected]


def test_a_taken_port_is_one_line_and_worth_another_attempt(folder, monkeypatch):
    log = folder / "launch.log"
    command = ["launch", "--config", str(folder / "config.yaml"), "--out", str(folder), "--on-node"]
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(slurm, "place", lambda: Place(("a07", "a08"), 0, "127.0.0.1", port))
        with forked(main, command, log=log) as process:
            assert code_of(process) == 1
    [line] = [line for line in log.read_text().splitlines() if line.startswith("resync: ")]
    assert line.startswith(f"resync: error: the processes of a run cannot meet at 127.0.0.1:{port}: ")
    assert "EADDRINUSE" in line


def test_a_rank_that_waits_for_one_that_was_told_to_stop_before_is_ended(folder, monkeypatch, tmp_path):
    """The one has ended before it met the others; the other one waits for it and cannot notice the signal."""

    def started(*given: Any) -> None:
        if os.environ["RANK"] == "1":
            until((tmp_path / "waits").exists)
            os._exit(os.EX_TEMPFAIL)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        (tmp_path / "waits").touch()
        signal.pause()

    monkeypatch.setattr("resync.runs.train.run.resume", started)
    monkeypatch.setattr("resync.runs.launch.fork._GRACE_SECONDS", 0.5)
    assert finish(folder) == os.EX_TEMPFAIL
    assert "resync: rank 0 is killed: it has not ended within 0.5 s" in (folder / "launch.log").read_text()


def test_a_restart_clears_what_a_killed_rank_has_left(folder):
    """The job holds the lock meanwhile, so that no other start of the run does it."""
    leftover = folder / ".metrics.csv.partial.0123456789abcdef.tmp"

    def attempt() -> int:
        code = 0 if leftover.exists() or calls else 1
        calls.append(leftover.exists())
        leftover.touch()
        return code

    calls: list[bool] = []
    request = Request(folder / "config.yaml", folder, 60, None, 1, "torchrun", max_restarts=1)
    assert attempts._restarted(request.run, request, attempt) == 0
    assert calls == [False, False]

"""The launchers `torchrun` and `deepspeed`: their ranks end, start again and stop like those that are forked."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from launched import OVER_MACHINES, assert_ends_like, checkpoints, code_of, finish, have_ended, launched
from machine import until
from runs import make_run
from torch.distributed.elastic.rendezvous.api import RendezvousConnectionError

from resync.runs.launch import torchrun
from resync.runs.launch.request import Place, Request
from resync.runs.launch.stopping import ASKED
from resync.runs.results import state
from resync.tools.cli import main

TORCHRUN = ("--launcher", "torchrun")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_run(tmp_path, **OVER_MACHINES)
    return tmp_path


@pytest.fixture(params=["torchrun", "deepspeed"])
def launcher(request: pytest.FixtureRequest) -> tuple[str, str]:
    if request.param == "deepspeed":
        pytest.importorskip("deepspeed", reason="DeepSpeed is not installed: pip install deepspeed")
    return ("--launcher", request.param)


def ranks_of(process: psutil.Process) -> list[psutil.Process]:
    found = []
    for each in process.children(recursive=True):
        with suppress(psutil.Error):  # a compiler that DeepSpeed has asked for its version
            found += [each] if "train" in each.cmdline()[:5] else []
    return found


@pytest.mark.slow
def test_a_run_starts_again_and_stops_and_has_the_bits_of_forked_ranks(launcher, folder: Path, tmp_path: Path):
    """A rank is killed, with which all start again; then the run is asked to stop; then it is left alone."""
    log = folder / "launch.log"
    with launched(folder, *launcher, "--max-restarts", "1") as process:
        until(lambda: checkpoints(folder), process)
        ranks_of(process)[1].kill()
        until(lambda: "restart 1 of 1" in log.read_text(), process)
        assert "rank 1 ended with exit code -9" in log.read_text() or "deepspeed" in launcher
        newest = checkpoints(folder)[-1]
        until(lambda: checkpoints(folder)[-1] > newest, process)
        others = process.children(recursive=True)
        process.send_signal(signal.SIGUSR1)
        assert code_of(process) == os.EX_TEMPFAIL, log.read_text()
        assert have_ended(others)
    assert state.recorded(folder).state == "stopped"
    assert finish(folder, *launcher) == 0, log.read_text()
    make_run(tmp_path / "forked", **OVER_MACHINES)
    assert finish(tmp_path / "forked", "--launcher", "fork") == 0
    ours = assert_ends_like(folder, tmp_path / "forked")
    assert len(ours["resumed_from"]) == 2
    assert ours["launch"]["world_size"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["while its ranks start", "while they train"])
def test_no_rank_outlives_its_launcher(moment: str, launcher, folder: Path):
    with launched(folder, *launcher) as process:
        until(lambda: checkpoints(folder) if "train" in moment else len(ranks_of(process)) == 2, process)
        below = process.children(recursive=True)
        process.kill()
        code_of(process)
        psutil.wait_procs(below, timeout=120)
        assert have_ended(below)


@pytest.mark.slow
def test_a_signal_while_the_ranks_start_stops_the_run(folder: Path):
    with launched(folder, *TORCHRUN, "--max-restarts", "1") as process:
        until(lambda: len(ranks_of(process)) == 2, process)
        process.send_signal(signal.SIGINT)
        assert code_of(process) == 130
    assert state.recorded(folder).state == "stopped"


@pytest.mark.slow
def test_a_mistake_is_not_tried_again(folder: Path):
    make_run(folder, **OVER_MACHINES | {"data": {"name": "mnist_14"}, "epochs": 1})
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RESYNC_DATA", raising=False)
        assert finish(folder, *TORCHRUN, "--max-restarts", "1") == 2
    log = (folder / "launch.log").read_text()
    assert "resync: error: data mnist_14: RESYNC_DATA is not set" in log
    assert "restart 1" not in log


@pytest.mark.parametrize("asked", [True, False])
def test_a_machine_that_outlives_the_store_of_a_stopped_run_has_stopped_too(asked, folder: Path, monkeypatch):
    def meets_nobody(*arguments: Any) -> None:
        raise RendezvousConnectionError("the store has gone")

    monkeypatch.setattr(torchrun, "elastic_launch", lambda *arguments: meets_nobody)
    monkeypatch.setenv(ASKED, "SIGTERM") if asked else monkeypatch.delenv(ASKED, raising=False)
    request = Request(config=folder / "config.yaml", out=folder, timeout=9, nodes=2, cpus=1, launcher="torchrun",
                      max_restarts=0)  # fmt: skip
    place = Place(hosts=("127.0.0.1", "127.0.0.2"), index=1, address="127.0.0.1", port=29999)
    if asked:
        assert torchrun.run(request.run, request, place) == os.EX_TEMPFAIL
    else:
        with pytest.raises(ConnectionError, match=r"cannot meet at 127\.0\.0\.1:29999: the store has gone"):
            torchrun.run(request.run, request, place)


def test_fork_starts_no_processes_on_a_gpu_or_on_several_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    make_run(tmp_path, **OVER_MACHINES | {"device": "cuda"})
    command = ["launch", "--config", str(tmp_path / "config.yaml"), "--out", str(tmp_path), "--launcher", "fork"]
    assert main(command) == 2
    assert (
        "launcher fork: found device cuda and 1 machines, allowed: device cpu on one machine" in capsys.readouterr().err
    )

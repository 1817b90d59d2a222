"""A run over the machines of a hostfile: two loopback addresses, with a launcher for each."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from launched import OVER_MACHINES, assert_ends_like, checkpoints, code_of, finish, forked, have_ended
from machine import until
from runs import make_run

from resync.runs.results import state
from resync.tools import cli


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_run(tmp_path, **OVER_MACHINES)
    (tmp_path / "hosts").write_text("# two machines\n127.0.0.1 slots=1\n\n127.0.0.2  slots=4  # the second\n")
    return tmp_path


def command(folder: Path, *flags: str) -> list[str]:
    given = ["--config", str(folder / "config.yaml"), "--out", str(folder), "--hostfile", str(folder / "hosts")]
    return ["launch", *given, *flags]


@contextmanager
def both(folder: Path, *flags: str) -> Iterator[list[psutil.Process]]:
    """The launchers of both machines."""
    first, second = (command(folder, *flags, "--node-rank", str(rank)) for rank in (0, 1))
    with (
        forked(cli.main, first, log=folder / "first.log") as here,
        forked(cli.main, second, log=folder / "second.log") as there,
    ):
        yield [here, there]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["torchrun", "deepspeed"])
def test_a_run_over_two_machines_stops_on_both_and_ends_like_one_on_one_machine(launcher, folder: Path, tmp_path: Path):
    """One machine is lost, with which the other one ends; then one is asked to stop; then both are left alone."""
    if launcher == "deepspeed":
        pytest.importorskip("deepspeed", reason="DeepSpeed is not installed: pip install deepspeed")
    with both(folder, "--launcher", launcher) as (first, second):
        until(lambda: checkpoints(folder), first)
        others = first.children(recursive=True)
        for lost in [*second.children(recursive=True), second]:
            lost.kill()
        assert code_of(first) == 1
        until(lambda: have_ended(others))
    assert state.recorded(folder).state == "failed"
    newest = checkpoints(folder)[-1]
    with both(folder, "--launcher", launcher) as machines:
        until(lambda: checkpoints(folder)[-1] > newest, machines[0])
        machines[1].send_signal(signal.SIGTERM)
        assert [code_of(each) for each in machines] == [os.EX_TEMPFAIL] * 2
    assert state.recorded(folder).state == "stopped"
    with both(folder, "--launcher", launcher) as machines:
        assert [code_of(each) for each in machines] == [0, 0]
    make_run(tmp_path / "here", **OVER_MACHINES)
    assert finish(tmp_path / "here") == 0
    ours = assert_ends_like(folder, tmp_path / "here")
    assert len(ours["resumed_from"]) == 2
    assert ours["launch"]["world_size"] == 2
    with both(folder) as machines:  # has its results
        assert [code_of(each) for each in machines] == [0, 0]


@pytest.mark.parametrize(
    ("text", "flags", "expected"),
    [
        ("a slots=1\nb\n", "", "hosts:2: found 'b', allowed: HOST slots=NUMBER"),
        ("a slots=0", "", "hosts:1: found 'a slots=0', allowed: HOST slots=NUMBER"),
        ("a slots=1\na slots=2", "", "hosts:2: found a again, allowed: one line for each host"),
        ("# nothing", "", "hosts: found 0 hosts, allowed: at least nodes = 1"),
        ("a slots=1", "--nodes 2", "hosts: found 1 hosts, allowed: at least nodes = 2"),
        ("a slots=1\nb slots=1\nc slots=1", "", "found 3 nodes, allowed: a divisor of the 2 processes of test/small"),
        ("a slots=1", "", "hosts: found slots=1 of host a, allowed: at least 2, its share of the processes"),
        ("a slots=1\nb slots=1", "", "--node-rank: missing, allowed: 0 to 1, the line of this machine in the hostfile"),
        ("a slots=1\nb slots=1", "--node-rank 2", "--node-rank: found 2, allowed: 0 to 1"),
        ("a slots=1\nb slots=1", "--node-rank 0 --max-restarts 1", "--max-restarts: found 1 with a hostfile, allowed"),
        (
            "b slots=1\nuser@b slots=1",
            "--node-rank 1",
            "hosts:2: found '@' in user@b, allowed: a name or address alone",
        ),
        ("b.invalid slots=1\nc slots=1", "--node-rank 1", "hosts: host b.invalid: "),
        (None, "", "No such file or directory"),
    ],
)
def test_a_hostfile_that_does_not_fit_is_one_line(text, flags: str, expected: str, folder: Path, capsys):
    (folder / "hosts").write_text(text) if text else (folder / "hosts").unlink()
    assert cli.main(command(folder, *flags.split())) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert expected in line

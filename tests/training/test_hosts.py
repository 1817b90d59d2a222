"""A run over the hosts of a hostfile: two loopback addresses, reached through a remote shell of this test."""

import os
import shlex
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from launched import OVER_MACHINES, assert_ends_like, checkpoints, code_of, finish, have_ended, launched
from machine import program, until
from runs import make_run

from resync.cli import main
from resync.launch import hosts
from resync.results import state

# As ssh: the host, and a command line for a shell there. What it starts does not end with it.
SHELL = """\
#!/bin/sh
case "$1" in *unreachable*) echo "connect to host $1: no route" >&2; exit 255;; esac
echo "$1" >> "{folder}/reached"
shift
exec sh -c "$*"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_run(tmp_path, **OVER_MACHINES)
    (tmp_path / "hosts").write_text("# two machines\n127.0.0.1 slots=1\n\n127.0.0.2  slots=4  # the second\n")
    shell = tmp_path / "shell"
    shell.write_text(SHELL.format(folder=tmp_path))
    shell.chmod(shell.stat().st_mode | stat.S_IXUSR)
    return tmp_path


@pytest.fixture
def ssh(folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    """The command of ssh for a server of this test alone on both addresses, and the server."""
    server, keygen = program("sshd", "openssh-server"), program("ssh-keygen", "openssh-client")
    for name in ("host_key", "key"):
        subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.2", 0))
        port = probe.getsockname()[1]
    Path("/run/sshd").mkdir(exist_ok=True) if os.geteuid() == 0 else None
    settings = {
        "Port": port, "HostKey": folder / "host_key", "AuthorizedKeysFile": folder / "key.pub", "PidFile": "none",
        "StrictModes": "no", "UsePAM": "no", "PasswordAuthentication": "no",
    }  # fmt: skip
    listen = ["ListenAddress 127.0.0.1", "ListenAddress 127.0.0.2"]
    lines = [*listen, *(f"{name} {value}" for name, value in settings.items())]
    (folder / "sshd_config").write_text("\n".join(lines) + "\n")
    with subprocess.Popen([server, "-D", "-E", folder / "sshd.log", "-f", folder / "sshd_config"]) as process:
        try:
            options = ["BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR"]
            options = ["-F", "none", "-p", str(port), "-i", str(folder / "key"), *(f"-o{each}" for each in options)]
            yield shlex.join([program("ssh", "openssh-client"), *options]), psutil.Process(process.pid)
        finally:
            process.terminate()


def flags(folder: Path) -> list[str]:
    return ["--hostfile", str(folder / "hosts"), "--remote-shell", str(folder / "shell")]


@contextmanager
def training(folder: Path) -> Iterator[tuple[psutil.Process, list[psutil.Process]]]:
    """A run that has a checkpoint: its launcher, and all other processes."""
    with launched(folder, *flags(folder)) as process:
        until(lambda: checkpoints(folder), process)
        yield process, process.children(recursive=True)


def trained_here(folder: Path) -> Path:
    """The same run on this machine."""
    make_run(folder, **OVER_MACHINES)
    assert finish(folder) == 0
    return folder


@pytest.mark.slow
def test_a_run_over_two_hosts_starts_again_and_stops_and_ends_like_one_on_one_machine(folder: Path, tmp_path: Path):
    """A rank is killed, with which all hosts start again; then the run is asked to stop; then it is left alone."""
    log = folder / "launch.log"
    with launched(folder, *flags(folder), "--max-restarts", "1") as launcher:
        until(lambda: checkpoints(folder), launcher)
        launcher.children(recursive=True)[-1].kill()
        until(lambda: "restart 1 of 1" in log.read_text(), launcher)
        newest = checkpoints(folder)[-1]
        until(lambda: checkpoints(folder)[-1] > newest, launcher)
        others = launcher.children(recursive=True)
        launcher.send_signal(signal.SIGTERM)
        assert code_of(launcher) == os.EX_TEMPFAIL, log.read_text()
        until(lambda: have_ended(others))
    assert state.recorded(folder).state == "stopped"
    assert finish(folder, *flags(folder)) == 0, log.read_text()
    assert sorted((folder / "reached").read_text().split()) == ["127.0.0.1"] * 3 + ["127.0.0.2"] * 3
    ours = assert_ends_like(folder, trained_here(tmp_path / "here"))
    assert len(ours["resumed_from"]) == 2
    assert ours["launch"]["world_size"] == 2


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_nothing_is_left_on_any_host_when_the_launcher_ends(number: signal.Signals, code: int, folder: Path):
    with training(folder) as (launcher, others):
        assert len(others) >= 2
        launcher.send_signal(number)
        assert code_of(launcher) == code
        until(lambda: have_ended(others))


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["torchrun", "deepspeed"])
def test_over_ssh_a_run_stops_with_a_checkpoint_and_ends_like_one_on_one_machine(launcher, ssh, folder, tmp_path):
    if launcher == "deepspeed":
        pytest.importorskip("deepspeed", reason="DeepSpeed is not installed: pip install deepspeed")
    command, server = ssh
    over = ["--hostfile", str(folder / "hosts"), "--remote-shell", command, "--launcher", launcher]
    with launched(folder, *over) as process:
        until(lambda: checkpoints(folder), process)
        there = server.children(recursive=True)
        assert len(there) >= 4
        process.send_signal(signal.SIGTERM)
        assert code_of(process) == os.EX_TEMPFAIL, (folder / "launch.log").read_text()
        until(lambda: have_ended(there))
    assert state.recorded(folder).state == "stopped"
    assert finish(folder, *over) == 0, (folder / "launch.log").read_text()
    assert len(assert_ends_like(folder, trained_here(tmp_path / "here"))["resumed_from"]) == 1


def test_a_host_that_cannot_be_reached_ends_the_others(folder: Path):
    (folder / "hosts").write_text("127.0.0.1 slots=1\nunreachable slots=1\n")
    assert finish(folder, *flags(folder)) == 1
    lines = (folder / "launch.log").read_text().splitlines()
    expected = "resync: error: test/small/one/seed3: host unreachable ended with exit code 255 (no connection by ssh)"
    assert expected in lines
    assert [line for line in lines if "Traceback" in line] == []
    assert state.recorded(folder).state == "failed"


@pytest.mark.parametrize(
    ("text", "nodes", "expected"),
    [
        ("a slots=1\nb\n", None, "hosts:2: found 'b', allowed: HOST slots=NUMBER"),
        ("a slots=0", None, "hosts:1: found 'a slots=0', allowed: HOST slots=NUMBER"),
        ("a slots=1\na slots=2", None, "hosts:2: found a again, allowed: one line for each host"),
        ("# nothing", None, "hosts: found 0 hosts, allowed: at least nodes = 1"),
        ("a slots=1", 2, "hosts: found 1 hosts, allowed: at least nodes = 2"),
        ("a slots=1\nb slots=1\nc slots=1", None, "found 3 nodes, allowed: a divisor of the 2 processes of test/small"),
        ("a slots=1", None, "hosts: found slots=1 of host a, allowed: at least 2, its share of the processes"),
    ],
)
def test_a_hostfile_that_does_not_fit_is_one_line(text, nodes, expected, folder: Path, capsys):
    (folder / "hosts").write_text(text)
    more = ["--nodes", str(nodes)] if nodes else []
    command = ["launch", "--config", str(folder / "config.yaml"), "--out", str(folder / "out"), *flags(folder), *more]
    assert main(command) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert expected in line


def test_a_missing_remote_shell_or_hostfile_is_one_line(folder: Path, capsys, monkeypatch: pytest.MonkeyPatch):
    command = ["launch", "--config", str(folder / "config.yaml"), "--out", str(folder / "out")]
    monkeypatch.setenv("RESYNC_HOSTFILE", str(folder / "hosts"))
    monkeypatch.setenv("RESYNC_REMOTE_SHELL", "no-such-shell -q")
    assert main(command) == 2
    assert "remote shell no-such-shell is not installed; allowed: ssh" in capsys.readouterr().err
    monkeypatch.setenv("RESYNC_HOSTFILE", str(folder / "nowhere"))
    assert main(command) == 2
    assert "No such file or directory" in capsys.readouterr().err


def test_no_secret_is_on_a_command_line_that_everybody_can_read():
    passed = [
        "NCCL_SOCKET_IFNAME",
        "GLOO_SOCKET_IFNAME",
        "RESYNC_DATA",
        "RESYNC_PREPARED",
        "RESYNC_LOCKED",
        "OMP_NUM_THREADS",
    ]
    assert [name for name in [*passed, "WANDB_API_KEY", "HOME", "PATH"] if hosts.FORWARDED.fullmatch(name)] == passed

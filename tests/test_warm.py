"""The warm process: a job in it and a job on its own are the same to whoever starts them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from resync.processes import warm

SERVER = """
import os, sys, time
from resync.processes import warm

def verb(arguments):
    print(os.getcwd(), os.environ["GREETING"], *arguments[1:])
    print("to the other stream", file=sys.stderr)
    if "wait" in arguments:
        time.sleep(600)
    if "raise" in arguments:
        raise RuntimeError("no traceback is lost")
    return int(arguments[-1])

warm.IMPORTS = {"verb": ("no_such_module",)}
warm.serve(verb)
"""
CLIENT = """
import sys
from resync.processes import warm

warm.IMPORTS = {"verb": ()}
sys.exit(warm.delegate(sys.argv[1:]))
"""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[Path]:
    """The socket of a warm process whose only verb is the one above."""
    path = tmp_path / "socket"
    server = subprocess.Popen([sys.executable, "-c", SERVER, str(path)], stdin=subprocess.PIPE)
    until(path.exists)
    yield path
    assert server.stdin
    server.stdin.close()
    assert server.wait(60) == 0


def until(condition) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def client(address: Path, *arguments: str) -> subprocess.Popen:
    environment = os.environ | {warm.ADDRESS: str(address), "GREETING": "hello"}
    environment.pop("SLURM_JOB_ID", None)
    command = [sys.executable, "-c", CLIENT, "verb", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=address.parent, env=environment, stdout=pipe, stderr=pipe, text=True)


def test_a_job_has_the_directory_environment_streams_and_exit_code_of_its_client(address):
    job = client(address, "one", "3")
    assert job.communicate(timeout=120) == (f"{address.parent} hello one 3\n", "to the other stream\n")
    assert job.returncode == 3


def test_an_exception_is_the_clients_traceback(address):
    job = client(address, "raise", "0")
    assert "RuntimeError: no traceback is lost" in job.communicate(timeout=120)[1]
    assert job.returncode == 1


def test_a_job_ends_with_its_client_and_the_next_one_is_served(address):
    server = next(each for each in psutil.process_iter(["cmdline"]) if str(address) in (each.info["cmdline"] or []))
    job = client(address, "wait", "0")
    until(server.children)
    job.send_signal(signal.SIGKILL)
    until(lambda: not server.children())
    assert client(address, "0").wait(120) == 0


def test_nothing_is_delegated_without_a_warm_process_or_to_another_machine(tmp_path, monkeypatch):
    monkeypatch.delenv(warm.ADDRESS, raising=False)
    assert warm.delegate(["render"]) is None
    monkeypatch.setenv(warm.ADDRESS, str(tmp_path / "nothing"))
    assert warm.delegate(["render"]) is None
    assert warm.delegate([]) is None


def test_resync_warm_has_the_exit_code_of_its_command_and_leaves_nothing(tmp_path):
    seen = tmp_path / "seen"
    script = f'test -n "${warm.ADDRESS}" && echo "${warm.ADDRESS}" > {seen}; exit 7'
    command = [sys.executable, "-m", "resync", "warm", "bash", "-c", script]
    assert subprocess.run(command, check=False, timeout=120).returncode == 7
    assert not Path(seen.read_text().strip()).parent.exists()


def test_a_command_cleans_up_after_ctrl_c(tmp_path):
    """As Snakemake takes its lock away: not in a moment."""
    script = f"trap 'sleep 1; touch {tmp_path}/cleaned; exit 5' INT; touch {tmp_path}/started; sleep 600 & wait"
    command = [sys.executable, "-m", "resync", "warm", "bash", "-c", script]
    process = subprocess.Popen(command, start_new_session=True)
    until((tmp_path / "started").exists)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(120) == 5
    assert (tmp_path / "cleaned").exists()


def test_a_real_verb_fails_in_the_warm_process_as_it_does_alone(tmp_path, monkeypatch):
    monkeypatch.delenv(warm.ADDRESS, raising=False)
    verb = [sys.executable, "-m", "resync", "report", "--configs", str(tmp_path / "nowhere")]
    alone, warmed = (
        subprocess.run([*command, *verb], check=False, timeout=300, capture_output=True, text=True)
        for command in ([], [sys.executable, "-m", "resync", "warm"])
    )
    assert (alone.returncode, alone.stderr, alone.stdout) == (2, warmed.stderr, warmed.stdout)
    assert warmed.returncode == 2

"""The warm process: a job in it and a job on its own are the same to whoever starts them."""

import argparse
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from resync.cli import declare, main
from resync.config import ConfigError
from resync.processes import warm, warm_client

PAPERS = Path(__file__).parents[1] / "paper_configs"

SERVER = """
import os, signal, sys, tempfile, time
from resync.processes import warm

read = []

def verb(arguments):
    if "read" in arguments:
        print(read[-1])
        print(tempfile.gettempdir())
        return 0
    print(os.getcwd(), os.environ["GREETING"], *arguments[1:])
    print("to the other stream", file=sys.stderr)
    if "wait" in arguments:
        time.sleep(600)
    if "clean" in arguments:
        def clean(*given):
            while not os.path.exists("may_end"):
                time.sleep(0.01)
            open("cleaned", "w").close()
            os._exit(0)
        signal.signal(signal.SIGTERM, clean)
        open("started", "w").close()
        time.sleep(600)
    if "raise" in arguments:
        raise RuntimeError("no traceback is lost")
    return int(arguments[-1])

warm.IMPORTS = {"verb": ("no_such_module",)}
def read_ahead(arguments, directory):
    tempfile.mkdtemp("which nobody removes")
    read.append((arguments, str(directory)))

warm.serve(verb, read_ahead)
"""
CLIENT = """
import sys
from resync.processes import warm_client

warm_client.IMPORTS = {"verb": ()}
sys.exit(warm_client.delegate(sys.argv[1:]))
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[subprocess.Popen]:
    """A warm process whose only verb is the one above."""
    path = tmp_path / "socket"
    with subprocess.Popen([sys.executable, "-c", SERVER, str(path)], stdin=subprocess.PIPE) as server:
        until(path.exists)
        yield server


@pytest.fixture
def address(server: subprocess.Popen, tmp_path: Path) -> Iterator[Path]:
    """The socket of the warm process, which ends well when its input does."""
    yield tmp_path / "socket"
    assert server.stdin
    server.stdin.close()
    assert server.wait(60) == 0


def until(condition) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def has_ended(process: psutil.Process) -> bool:
    """Whether a process has ended, even if nobody has asked for its exit code yet."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def client(address: Path, *arguments: str) -> subprocess.Popen:
    environment = os.environ | {warm_client.ADDRESS: str(address), "GREETING": "hello"}
    environment.pop("SLURM_JOB_ID", None)
    command = [sys.executable, "-c", CLIENT, "verb", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=address.parent, env=environment, stdout=pipe, stderr=pipe, text=True)


def test_a_job_has_the_directory_environment_streams_and_exit_code_of_its_client(address):
    job = client(address, "one", "3")
    assert job.communicate(timeout=120) == (f"{address.parent} hello one 3\n", "to the other stream\n")
    assert job.returncode == 3


def test_a_job_has_what_was_read_for_it_before(address):
    job = client(address, "read")
    read, temporary = job.communicate(timeout=120)[0].splitlines()
    assert read == str((["verb", "read"], str(address.parent)))
    assert temporary == tempfile.gettempdir()


def test_a_warm_process_leaves_no_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    path = tmp_path / "own" / "socket"
    path.parent.mkdir()
    with subprocess.Popen([sys.executable, "-c", SERVER, str(path)], stdin=subprocess.PIPE):
        until(path.exists)
        assert client(path, "0").wait(120) == 0
        assert list(tmp_path.glob("resync-*/*which nobody removes"))
    assert not list(tmp_path.iterdir())


def test_a_verb_takes_the_papers_read_ahead_until_a_file_changes(tmp_path, monkeypatch):
    for folder in ("scales", "ddp_tricks"):
        shutil.copytree(PAPERS / folder, tmp_path / "configs" / folder)
    monkeypatch.setattr(declare, "_AHEAD", {})
    options = argparse.Namespace(configs=tmp_path / "configs", paper="ddp_tricks")
    alone = declare.suite_of(options)
    declare.read_ahead(["render", "--configs=configs"], tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(declare, "load_suite", None)
        assert declare.suite_of(options) == alone
    file = tmp_path / "configs/ddp_tricks/paper.yaml"
    file.write_text(file.read_text().replace("title: ", "title: Other ", 1))
    assert declare.suite_of(options).papers["ddp_tricks"].title.startswith("Other ")
    file.write_text("title: nothing else")
    declare.read_ahead(["render", "--configs=configs"], tmp_path)
    with pytest.raises(ConfigError):
        declare.suite_of(options)


def test_what_a_block_leaves_is_kept_until_the_end_of_the_process():
    code = """
import gc
from resync.processes.garbage import all_kept
with all_kept():
    assert not gc.isenabled()
    cycle = []
    cycle.append(cycle)
assert gc.isenabled() and gc.get_freeze_count() and not any(each is cycle for each in gc.get_objects())
gc.disable()
with all_kept():
    pass
assert not gc.isenabled()
import atexit
atexit._run_exitfuncs()
assert not gc.get_freeze_count()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_exception_is_the_clients_traceback(address):
    job = client(address, "raise", "0")
    assert "RuntimeError: no traceback is lost" in job.communicate(timeout=120)[1]
    assert job.returncode == 1


def test_a_job_ends_with_its_client_and_the_next_one_is_served(server, address):
    server = psutil.Process(server.pid)
    job = client(address, "wait", "0")
    until(server.children)
    job.send_signal(signal.SIGKILL)
    until(lambda: not server.children())
    assert client(address, "0").wait(120) == 0


def test_a_job_is_asked_to_end_when_the_warm_process_is_killed_and_its_client_ends_after_it(server, tmp_path):
    """It would go on unseen otherwise, beside the job that is started in its place."""
    job = client(tmp_path / "socket", "clean", "0")
    until((tmp_path / "started").exists)
    server.kill()
    server.wait()
    (tmp_path / "may_end").touch()
    assert "the warm process ended before the job did" in job.communicate(timeout=120)[1]
    assert job.returncode == 1
    assert (tmp_path / "cleaned").exists()


def test_a_job_that_ends_together_with_its_client_disturbs_no_other(server, address):
    warm_process = psutil.Process(server.pid)
    running = client(address, "wait", "0")
    until(lambda: len(warm_process.children()) == 1)
    [first] = warm_process.children()
    jobs = [client(address, "wait", "0") for _ in range(3)]
    until(lambda: len(warm_process.children()) == 4)
    server.send_signal(signal.SIGSTOP)  # so that it finds the end of all of them at once
    for each in [*jobs, *(fork for fork in warm_process.children() if fork != first)]:
        each.kill()
    for job in jobs:
        job.wait()
    server.send_signal(signal.SIGCONT)
    until(lambda: len(warm_process.children()) == 1)
    assert client(address, "0").wait(120) == 0
    assert running.poll() is None
    running.kill()


@pytest.mark.parametrize("sent", [b"", b'{"arguments": ["verb"'])
def test_a_client_that_vanishes_before_its_request_is_complete_disturbs_no_other(sent, address):
    running = client(address, "wait", "0")
    with socket.socket(socket.AF_UNIX) as vanishing:
        vanishing.connect(str(address))
        if sent:
            socket.send_fds(vanishing, [sent], [0, 1, 2])
        assert client(address, "0").wait(120) == 0  # while the request is incomplete
    assert client(address, "0").wait(120) == 0
    assert running.poll() is None
    running.kill()
    running.wait()


def test_nothing_is_delegated_without_a_warm_process_or_to_another_machine(tmp_path, monkeypatch):
    monkeypatch.delenv(warm_client.ADDRESS, raising=False)
    assert warm_client.delegate(["render"]) is None
    monkeypatch.setenv(warm_client.ADDRESS, str(tmp_path / "nothing"))
    assert warm_client.delegate(["render"]) is None
    assert warm_client.delegate([]) is None


def test_resync_warm_has_the_exit_code_of_its_command_and_leaves_nothing(tmp_path):
    seen = tmp_path / "seen"
    script = f'test -n "${warm_client.ADDRESS}" && echo "${warm_client.ADDRESS}" > {seen}; exit 7'
    command = [sys.executable, "-m", "resync", "warm", "bash", "-c", script]
    assert subprocess.run(command, check=False, timeout=120).returncode == 7
    assert not Path(seen.read_text().strip()).parent.exists()


def test_resync_warm_works_below_a_long_path(tmp_path):
    """The address of a socket has at most 107 bytes."""
    folder = tmp_path / ("x" * 124)
    folder.mkdir()
    command = [sys.executable, "-m", "resync"]
    job = shlex.join([*command, "report", "--configs", str(tmp_path / "nowhere")])
    script = f"{job}; code=$?; test -S ${warm_client.ADDRESS} && exit $code"
    environment = {name: value for name, value in os.environ.items() if name != "SLURM_JOB_ID"}
    done = subprocess.run(
        [*command, "warm", "bash", "-c", script], check=False, timeout=300, capture_output=True, text=True,
        env=environment | {"TMPDIR": str(folder)},
    )  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr


def test_no_command_is_one_line(capsys):
    assert main(["warm"]) == 2
    assert capsys.readouterr().err == (
        "resync: error: warm: found no command, allowed: a command and its arguments, such as snakemake\n"
    )


def test_the_exit_code_of_a_killed_command_is_the_one_that_a_shell_gives():
    command = [sys.executable, "-m", "resync", "warm", "bash", "-c", "kill -9 $$"]
    assert subprocess.run(command, check=False, timeout=120).returncode == 137


def test_a_killed_resync_warm_leaves_no_process_and_no_folder(tmp_path):
    seen = tmp_path / "seen"
    script = f'echo "${warm_client.ADDRESS}" > {seen}; exec sleep 600'
    command = [sys.executable, "-m", "resync", "warm", "bash", "-c", script]
    process = subprocess.Popen(command)
    until(lambda: seen.exists() and seen.read_text().endswith("\n"))
    started = psutil.Process(process.pid).children(recursive=True)
    assert len(started) == 2  # the warm process and the command
    process.kill()
    process.wait()
    try:
        until(lambda: all(has_ended(each) for each in started))
        until(lambda: not Path(seen.read_text().strip()).parent.exists())
    finally:
        for each in started:
            with suppress(psutil.NoSuchProcess):
                each.kill()


def test_a_client_waits_for_its_job_after_ctrl_c_and_not_after_the_second_one(address, tmp_path):
    first = client(address, "clean")
    until((tmp_path / "started").exists)
    first.send_signal(signal.SIGINT)
    (tmp_path / "may_end").touch()
    assert (first.communicate(timeout=120)[1], first.returncode) == ("to the other stream\n", 0)
    assert (tmp_path / "cleaned").exists()
    for name in ("started", "may_end", "cleaned"):
        (tmp_path / name).unlink()
    second = client(address, "clean")
    until((tmp_path / "started").exists)
    second.send_signal(signal.SIGINT)
    time.sleep(0.2)  # signals that come at the same moment are one
    second.send_signal(signal.SIGINT)
    assert second.wait(120) == 130
    (tmp_path / "may_end").touch()
    assert second.communicate(timeout=120)[1] == "to the other stream\n"
    until((tmp_path / "cleaned").exists)


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
    monkeypatch.delenv(warm_client.ADDRESS, raising=False)
    verb = [sys.executable, "-m", "resync", "report", "--configs", str(tmp_path / "nowhere")]
    alone, warmed = (
        subprocess.run([*command, *verb], check=False, timeout=300, capture_output=True, text=True)
        for command in ([], [sys.executable, "-m", "resync", "warm"])
    )
    assert (alone.returncode, alone.stderr, alone.stdout) == (2, warmed.stderr, warmed.stdout)
    assert warmed.returncode == 2


def test_every_module_that_is_imported_beforehand_exists():
    names = {name.removesuffix(".*") for modules in warm.IMPORTS.values() for name in modules}
    assert [name for name in sorted(names) if find_spec(name) is None] == []


def test_all_modules_of_a_package_are_imported_but_a_broken_one(tmp_path, monkeypatch):
    (tmp_path / "some_room").mkdir()
    for name, text in (("__init__", ""), ("first", ""), ("broken", "import no_such_module"), ("last", "")):
        (tmp_path / f"some_room/{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    warm._import("some_room.*")
    assert sorted(name for name in sys.modules if name.startswith("some_room")) == [
        "some_room", "some_room.first", "some_room.last",
    ]  # fmt: skip

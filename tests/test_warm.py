"""The process of `resync run` that has imported what jobs need, and what its forks are to whoever asks for them."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from machine import until

from resync.base.processes import warm, warm_client
from snakemake_executor_plugin_resync import living

# Its only verb; `learn` imports a module, which the server then imports for the next job.
SERVER = """
import os, signal, socket, sys, time
from resync.base.processes import surroundings, warm

def verb(arguments):
    surroundings.leave()
    if "learn" in arguments:
        import wave
    print(os.getcwd(), os.environ["GREETING"], *arguments[1:], flush=True)
    print("to the other stream", "wave" in before, file=sys.stderr)
    if arguments[0] == "render":
        print(os.getpid())
    if "wait" in arguments:
        def clean(*_):
            open("cleaned", "w").close()
            "stay" in arguments or os._exit(9)
        signal.signal(signal.SIGTERM, clean)
        open(f"started{os.getpid()}", "w").close()
        while True:
            time.sleep(600)
    if "raise" in arguments:
        raise RuntimeError("no traceback is lost")
    return int(arguments[-1])

class Before:
    def __contains__(self, name):
        return name in imported
before = Before()
imported = set()
os.register_at_fork(after_in_child=lambda: imported.update(sys.modules))
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1] + "/socket")
listener.listen(128)
sys.argv[1:] = [str(listener.detach()), sys.argv[1]]
warm.serve(verb)
"""
WARM = [sys.executable, "-c", "import sys; from resync.base.processes import warm; sys.exit(warm.run(sys.argv[1:]))"]
CLIENT = "import sys; from resync.base.processes import warm_client; sys.exit(warm_client.delegate(sys.argv[1:]))"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[subprocess.Popen]:
    """A warm process with the verb above, which ends well when its input does and deletes its folder."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # that of the test may be too long for the address of a socket
    monkeypatch.setenv(warm_client.ADDRESS, f"{folder}/socket")
    command = [sys.executable, "-c", SERVER, str(folder)]
    # Its output is a file, in which it could seek, and that of its forks is a pipe.
    with (
        (tmp_path / "server.log").open("w") as log,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, env=os.environ | {"PYTHONIOENCODING": "utf-8:strict"}
        ) as server,
    ):
        until((folder / "socket").exists, psutil.Process(server.pid))
        yield server
        assert server.stdin
        server.stdin.close()
        if server.wait(600) == 0:
            assert not folder.exists()


def client(folder: Path, *arguments: str) -> subprocess.Popen:
    environment = os.environ | {"GREETING": "hello"}
    environment.pop("SLURM_JOB_ID", None)
    command = [sys.executable, "-c", CLIENT, "verb", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True)


def test_a_job_has_the_directory_environment_streams_and_exit_code_of_its_client(server, tmp_path):
    for warmed in (False, True):
        job = client(tmp_path, "learn", "3")
        assert job.communicate(timeout=120) == (f"{tmp_path} hello learn 3\n", f"to the other stream {warmed}\n")
        assert job.returncode == 3


def test_an_exception_is_the_clients_traceback(server, tmp_path):
    job = client(tmp_path, "raise", "0")
    assert "RuntimeError: no traceback is lost" in job.communicate(timeout=120)[1]
    assert job.returncode == 1


@pytest.mark.parametrize("victim", ["client", "server", "job"])
def test_a_job_is_asked_to_end_with_its_client_and_with_the_server(victim, server, tmp_path):
    job = client(tmp_path, "wait", "0")
    until(lambda: list(tmp_path.glob("started*")))
    fork = psutil.Process(int(next(tmp_path.glob("started*")).name.removeprefix("started")))
    {"client": job, "server": server, "job": fork}[victim].send_signal(signal.SIGKILL)
    job.wait(120)
    if victim == "job":
        assert job.returncode == 1
        assert "the job was killed" in job.communicate()[1]
    else:
        until((tmp_path / "cleaned").exists)
        assert job.returncode != 0
    if victim != "server":
        with socket.socket(socket.AF_UNIX) as vanishing:  # and a malformed request ends its own fork only
            vanishing.connect(os.environ[warm_client.ADDRESS])
            vanishing.sendall(b"\ngarbage\n")
        assert client(tmp_path, "0").wait(120) == 0


@pytest.mark.parametrize("stays", [False, True])
def test_a_client_passes_ctrl_c_on_and_does_not_wait_after_the_second_one(stays, server, tmp_path):
    job = client(tmp_path, "wait", *["stay"] * stays, "0")
    until(lambda: list(tmp_path.glob("started*")))
    job.send_signal(signal.SIGINT)
    until((tmp_path / "cleaned").exists)  # signals that come at the same moment are one
    if stays:
        assert job.poll() is None
        job.send_signal(signal.SIGINT)
    assert job.wait(120) == 130
    for started in tmp_path.glob("started*"):
        with suppress(ProcessLookupError):
            os.kill(int(started.name.removeprefix("started")), signal.SIGKILL)


def test_nothing_is_delegated_without_a_warm_process_or_to_another_machine(monkeypatch):
    monkeypatch.delenv(warm_client.ADDRESS, raising=False)
    assert warm_client.delegate(["render"]) is None
    monkeypatch.setenv(warm_client.ADDRESS, "/nowhere/socket")
    assert warm_client.delegate(["render"]) is None
    assert warm_client.delegate([]) is None


def test_a_verb_fails_in_the_warm_process_as_it_does_alone(tmp_path):
    """Also below a long path: the address of a socket has at most 107 bytes."""
    (tmp_path / ("x" * 124)).mkdir()
    environment = os.environ | {"TMPDIR": str(tmp_path / ("x" * 124))}
    for name in (warm_client.ADDRESS, "SLURM_JOB_ID"):
        environment.pop(name, None)
    verb = [sys.executable, "-m", "resync", "report", "--configs", str(tmp_path / "nowhere")]
    alone, warmed = (
        subprocess.run([*command, *verb], check=False, timeout=600, capture_output=True, text=True, env=environment)
        for command in ([], WARM)
    )
    assert (alone.returncode, alone.stderr, alone.stdout) == (warmed.returncode, warmed.stderr, warmed.stdout)
    assert (warmed.returncode, warmed.stderr.count("\n")) == (2, 1)
    assert not list(tmp_path.rglob("resync-*"))


@pytest.mark.parametrize(("end", "code"), [("exit 7", 7), ("kill -9 $$", 137)])
def test_a_warm_command_has_the_exit_code_that_a_shell_gives_it(end, code, monkeypatch):
    """It ends with its command, whose warm process may have much left to import."""
    monkeypatch.setattr(warm, "SERVE", "import time; time.sleep(600)")
    assert warm.run(["bash", "-c", end]) == code


def test_a_killed_warm_command_leaves_no_process_and_no_folder(tmp_path):
    seen = tmp_path / "seen"
    script = f'echo "${warm_client.ADDRESS}" > {seen}; exec sleep 600'
    process = subprocess.Popen([*WARM, "bash", "-c", script])
    until(lambda: seen.exists() and seen.read_text().endswith("\n"))
    started = psutil.Process(process.pid).children(recursive=True)
    assert len(started) == 2  # the warm process and the command
    process.kill()
    process.wait()
    try:
        until(lambda: not Path(seen.read_text().strip()).parent.exists())
        until(lambda: not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in started))
    finally:
        for each in started:
            with suppress(psutil.NoSuchProcess):
                each.kill()


def test_a_command_cleans_up_after_ctrl_c(tmp_path):
    """As Snakemake takes its lock away: not in a moment."""
    script = f"trap 'sleep 1; touch {tmp_path}/cleaned; exit 5' INT; touch {tmp_path}/started; sleep 600 & wait"
    command = [*WARM, "bash", "-c", script]
    process = subprocess.Popen(command, start_new_session=True)
    until((tmp_path / "started").exists)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(600) == 5
    assert (tmp_path / "cleaned").exists()


SNAKEFILE = """
rule all:
    input: "asked", "in a shell", "drawn 1", "drawn 2"

rule asked:
    output: "asked"
    log: "asked's log"
    shell: "python -m resync verb 0 > {output:q} 2> {log:q}"

rule in_a_shell:
    output: "in a shell"
    shell: "echo $OMP_NUM_THREADS > {output:q}"

rule drawn:
    output: "drawn {n}"
    log: "drawn's {n}"
    shell: "python -m resync render {wildcards.n} 0 > {output:q} 2> {log:q}"

rule fails:
    output: "never"
    log: "failed.log"
    shell: "python -m resync verb {WORD} 7 > {log:q} 2>&1"
"""


def test_the_executor_asks_no_fork_again_that_has_ended():
    (here, there), (lost, ended) = socket.socketpair(), socket.socketpair()
    ended.close()
    idle = [here, lost]
    with there:
        assert living(idle) is here
        assert not idle
        assert lost.fileno() == -1, "is closed"
        here.close()


def test_snakemakes_executor_asks_the_warm_process_for_verbs(server, tmp_path):
    """Whose forks have no parent among Snakemake's processes; everything else is done by a shell."""
    environment = os.environ | {"GREETING": "hello"}
    environment.pop("SLURM_JOB_ID", None)

    def snakemake(target: str, word: str) -> subprocess.CompletedProcess:
        (tmp_path / "Snakefile").write_text(f"WORD = '{word}'\n{SNAKEFILE}")
        command = [
            sys.executable,
            "-m",
            "snakemake",
            "--cores",
            "1",
            "--executor",
            "resync",
            "--show-failed-logs",
            target,
        ]
        return subprocess.run(command, cwd=tmp_path, env=environment, timeout=600, capture_output=True, text=True)

    done = snakemake("all", "")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "asked").read_text() == f"{tmp_path} hello 0\n"
    assert (tmp_path / "asked's log").read_text() == "to the other stream False\n"
    assert (tmp_path / "in a shell").read_text() == "1\n"
    drawn = [(tmp_path / f"drawn {n}").read_text().splitlines() for n in (1, 2)]
    assert [line for line, _ in drawn] == [f"{tmp_path} hello {n} 0" for n in (1, 2)]
    assert drawn[0][1] == drawn[1][1], "a second figure is drawn by the fork that has drawn the first one"
    assert (tmp_path / "drawn's 2").read_text() == "to the other stream False\n"

    failed = snakemake("never", "raise")
    assert failed.returncode == 1
    assert "RuntimeError: no traceback is lost" in failed.stderr
    assert not (tmp_path / "never").exists()

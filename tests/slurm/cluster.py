"""A Slurm cluster of virtual nodes on this machine: controller and daemons as root, all files in one folder.

`python tests/slurm/cluster.py FOLDER` starts one, prints how to use it and stops it at the end of the standard input.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged")
INSTALL = "apt-get install slurmctld slurmd slurm-client munge"
NODES = 4
CLIENTS = ("sbatch", "srun", "squeue", "scancel", "scontrol", "sinfo")

CONF = """\
ClusterName=virtual
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# Seconds for which a step may start late. A job that is queued again waits as long: by default two minutes.
AuthInfo=socket={folder}/munge.socket,cred_expire=10
CredType=cred/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
MailProg=/bin/true
MpiDefault=none
ReturnToService=2
MinJobAge=300
KillWait=30
# A busy machine with two cores answers late.
MessageTimeout=100
TCPTimeout=30
BatchStartTimeout=120
SlurmdTimeout=30
InactiveLimit=0
SchedulerParameters=sched_interval=2,batch_sched_delay=0,sched_min_interval=100000
{nodes}
PartitionName=main Default=YES Nodes=ALL MaxTime=INFINITE State=UP
"""


def missing() -> list[str]:
    """The programs that are not installed."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    return [name for name in PROGRAMS if shutil.which(name, path=path) is None]


class Cluster:
    """A running cluster: its daemons by name, and the environment in which its commands are found first."""

    def __init__(self, folder: Path, daemons: dict[str, subprocess.Popen[bytes]]) -> None:
        self.folder = folder
        self.daemons = daemons

    @property
    def environment(self) -> dict[str, str]:
        """With the cluster's commands in front; no variable names its configuration, for jobs would lose it."""
        return os.environ | {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}

    def ask(self, *command: str) -> str:
        """What one of the cluster's commands prints."""
        return subprocess.run(command, env=self.environment, check=True, capture_output=True, text=True).stdout

    def until(self, condition, seconds: float = 300) -> None:
        """Wait for something that the cluster brings about."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.ask("squeue") + self.ask("sinfo")
            time.sleep(0.2)


@contextmanager
def running(folder: Path) -> Iterator[Cluster]:
    """A cluster of `NODES` nodes with `folder` for its files; nothing of it outlives the block."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    _write_files(folder)
    with ExitStack() as stack:
        daemons = {}
        commands = {
            "munged": ["munged", "--foreground", "--force", f"--socket={folder}/munge.socket",
                       f"--key-file={folder}/munge.key", f"--pid-file={folder}/munged.pid",
                       f"--log-file={folder}/munged.log", f"--seed-file={folder}/munged.seed"],
            "slurmctld": ["slurmctld", "-D", "-c", "-f", f"{folder}/slurm.conf"],
            **{f"n{index}": _slurmd(folder, f"n{index}") for index in range(NODES)},
        }  # fmt: skip
        for name, command in commands.items():
            daemons[name] = _started(command, folder / f"{name}.out")
            stack.callback(_end, daemons, name)
            if name == "munged":
                _wait_for(folder / "munge.socket", daemons[name])
        cluster = Cluster(folder, daemons)
        stack.callback(_cancel_all, cluster)
        cluster.until(lambda: _idle(cluster) == NODES, seconds=120)
        yield cluster


def start_node(cluster: Cluster, name: str) -> None:
    """Start the daemon of a node that was killed."""
    cluster.daemons[name].wait()
    cluster.daemons[name] = _started(_slurmd(cluster.folder, name), cluster.folder / f"{name}.out")


def _slurmd(folder: Path, name: str) -> list[str]:
    return ["slurmd", "-D", "-N", name, "-f", f"{folder}/slurm.conf"]


def _write_files(folder: Path) -> None:
    host, ports = socket.gethostname().split(".")[0], _free_ports(NODES + 1)
    nodes = "\n".join(
        f"NodeName=n{index} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 RealMemory=16000 State=UNKNOWN"
        for index, port in enumerate(ports[1:])
    )
    (folder / "slurm.conf").write_text(CONF.format(host=host, folder=folder, controller_port=ports[0], nodes=nodes))
    key = folder / "munge.key"
    key.write_bytes(os.urandom(64))
    key.chmod(0o400)
    (folder / "state").mkdir(exist_ok=True)
    (folder / "bin").mkdir(exist_ok=True)
    for name in CLIENTS:
        script = folder / "bin" / name
        script.write_text(f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {shutil.which(name)} "$@"\n')
        script.chmod(0o755)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def _end(daemons: dict[str, subprocess.Popen[bytes]], name: str) -> None:
    """End the daemon that has this name now; it may have been started again."""
    daemons[name].terminate()
    try:
        daemons[name].wait(20)
    except subprocess.TimeoutExpired:
        daemons[name].kill()
        daemons[name].wait()


def _started(command: list[str], output: Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    with output.open("ab") as file:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment)


def _wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert process.poll() is None, f"{process.args} ended"
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _idle(cluster: Cluster) -> int:
    try:
        return cluster.ask("sinfo", "--noheader", "--Node", "--format=%T").split().count("idle")
    except subprocess.CalledProcessError:
        return 0  # the controller is not up yet


def _cancel_all(cluster: Cluster) -> None:
    cluster.ask("scancel", "--user=root")
    cluster.until(lambda: not cluster.ask("squeue", "--noheader"))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with running(Path(sys.argv[1]).resolve()) as here:
        print(f"export PATH={here.folder}/bin:$PATH", flush=True)
        sys.stdin.read()

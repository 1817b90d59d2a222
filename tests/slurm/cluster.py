"""A Slurm cluster of virtual nodes on this machine: controller and daemons run as root, all files are in one folder.

`python tests/slurm/cluster.py FOLDER` starts one, prints how to use it and stops it when standard input ends.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged")
ACCOUNTING = ("slurmdbd", "mariadbd")
INSTALL = "apt-get install slurmctld slurmd slurm-client munge slurmdbd mariadb-server"
NODES = 4
CLIENTS = ("sbatch", "srun", "squeue", "scancel", "scontrol", "sinfo", "sacct", "sacctmgr")
MUNGE_FILES = {"socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}

CONF = """\
ClusterName=virtual
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
# Ports of runs follow from job numbers: beside another cluster on this machine, other numbers.
FirstJobId={controller_port}
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
{accounting}
{nodes}
PartitionName=main Default=YES Nodes=ALL MaxTime=INFINITE State=UP
"""

WITH_ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={folder}/munge.socket
AccountingStoreFlags=job_comment
JobAcctGatherType=jobacct_gather/none
"""
DBD_CONF = """\
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database_port}
StorageUser=root
PidFile={folder}/slurmdbd.pid
LogFile={folder}/slurmdbd.log
"""


def missing(programs: Iterable[str] = PROGRAMS) -> list[str]:
    """The programs that are not installed."""
    return [name for name in programs if shutil.which(name, path=_path()) is None]


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"


class Cluster:
    """A running cluster: its daemons by name, and the environment in which its commands are found first."""

    def __init__(self, folder: Path, daemons: dict[str, subprocess.Popen[bytes]]) -> None:
        self.folder = folder
        self.daemons = daemons

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment with the cluster's commands first in PATH.

        No variable names the cluster's configuration, because jobs would lose it.
        """
        return os.environ | {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}

    def ask(self, *command: str) -> str:
        """The output of one of the cluster's commands."""
        return subprocess.run(command, env=self.environment, check=True, capture_output=True, text=True).stdout

    def until(self, condition, seconds: float = 300) -> None:
        """Wait until the cluster has made `condition` true."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.ask("squeue") + self.ask("sinfo")
            time.sleep(0.2)


@contextmanager
def running(folder: Path, accounting: bool = False) -> Iterator[Cluster]:
    """A cluster of `NODES` nodes with its files in `folder`, and with a database of its jobs if `accounting`.

    All of its processes end with the block.
    """
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    controller, dbd, database, *nodes = _free_ports(3 + NODES)
    _write_files(folder, controller, nodes, _write_accounting(folder, dbd, database) if accounting else "")
    daemons: dict[str, subprocess.Popen[bytes]] = {}
    cluster = Cluster(folder, daemons)
    with ExitStack() as stack:

        def start(name: str, command: list[str], ready: Callable[[], object] = lambda: True) -> None:
            daemons[name] = _started(command, folder / f"{name}.out")
            stack.callback(_end, daemons, name)
            _wait_until(ready, daemons[name])

        munge = [f"--{file}={folder}/munge.{end}" for file, end in MUNGE_FILES.items()]
        start("munged", ["munged", "--foreground", "--force", *munge], (folder / "munge.socket").exists)
        if accounting:
            start("mariadbd", _mariadbd(folder, database), lambda: _answers(database))
            start("slurmdbd", ["slurmdbd", "-D"], lambda: _answers(dbd))
            cluster.ask("sacctmgr", "--immediate", "add", "cluster", "virtual")
        start("slurmctld", ["slurmctld", "-D", "-c", "-f", f"{folder}/slurm.conf"])
        for name in (f"n{index}" for index in range(NODES)):
            start(name, _slurmd(folder, name))
        stack.callback(_cancel_all, cluster)
        cluster.until(lambda: _idle(cluster) == NODES, seconds=120)
        yield cluster


def start_node(cluster: Cluster, name: str) -> None:
    """Start the daemon of a node that was killed."""
    cluster.daemons[name].wait()
    cluster.daemons[name] = _started(_slurmd(cluster.folder, name), cluster.folder / f"{name}.out")


def _slurmd(folder: Path, name: str) -> list[str]:
    return ["slurmd", "-D", "-N", name, "-f", f"{folder}/slurm.conf"]


def _mariadbd(folder: Path, port: int) -> list[str]:
    data = folder / "mysql"
    subprocess.run(["mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}"], check=True,
                   capture_output=True)  # fmt: skip
    return ["mariadbd", "--no-defaults", "--user=root", f"--datadir={data}", f"--socket={folder}/mysql.socket",
            "--bind-address=127.0.0.1", f"--port={port}", "--skip-grant-tables"]  # fmt: skip


def _write_accounting(folder: Path, dbd_port: int, database_port: int) -> str:
    """Write slurmdbd.conf; return the lines of slurm.conf that refer to it."""
    path = folder / "slurmdbd.conf"
    path.write_text(DBD_CONF.format(host=_host(), folder=folder, port=dbd_port, database_port=database_port))
    path.chmod(0o600)
    return WITH_ACCOUNTING.format(folder=folder, port=dbd_port)


def _write_files(folder: Path, controller_port: int, node_ports: list[int], accounting: str) -> None:
    host = _host()
    nodes = "\n".join(
        f"NodeName=n{index} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 RealMemory=16000 State=UNKNOWN"
        for index, port in enumerate(node_ports)
    )
    conf = CONF.format(host=host, folder=folder, controller_port=controller_port, nodes=nodes, accounting=accounting)
    (folder / "slurm.conf").write_text(conf)
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
    """End the current daemon of this name, which may have been restarted."""
    daemons[name].terminate()
    try:
        daemons[name].wait(20)
    except subprocess.TimeoutExpired:
        daemons[name].kill()
        daemons[name].wait()


def _started(command: list[str], output: Path) -> subprocess.Popen[bytes]:
    # slurmdbd has no flag for its configuration: it looks for it beside slurm.conf.
    environment = os.environ | {"PATH": _path(), "SLURM_CONF": str(output.with_name("slurm.conf"))}
    with output.open("ab") as file:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment)


def _wait_until(ready: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not ready():
        assert process.poll() is None, f"{process.args} ended"
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _answers(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def _host() -> str:
    return socket.gethostname().split(".")[0]


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

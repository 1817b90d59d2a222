"""A run as a step of a Slurm job with one task per node, no matter from where the job was started.

This also holds on a single node: Slurm sends signals only to the tasks of a step, not to the processes they start.
"""

import os
import re
import shutil
import signal
import subprocess
import sys

from resync.base.errors import UserError
from resync.runs.launch.request import PORTS, Place, Request
from resync.runs.launch.stopping import ended
from resync.runs.run import Run

JOB = "SLURM_JOB_ID"


def inside() -> bool:
    """Whether this process belongs to a Slurm job."""
    return JOB in os.environ


def run(run: Run, request: Request) -> int:
    """Train on all nodes in a separate job step; return the exit code."""
    # srun forwards SIGUSR1 to its tasks; SIGTERM would end it.
    return ended(step(run, request), _environment(), lambda srun: os.kill(srun, signal.SIGUSR1))


def require_commands() -> None:
    """Raise ValueError where Slurm's commands are missing although its variables are there, as in a container."""
    if shutil.which("srun") is None:
        found = f"found {JOB}={os.environ[JOB]}, of a Slurm job, and no srun"
        raise UserError(f"{found}, allowed: both, as with Slurm's commands in a container, or neither: unset {JOB}")


def step(run: Run, request: Request) -> list[str]:
    """The command line for one task per node, with all of the job's CPUs, memory and GPUs on that node."""
    flags = [
        f"--job-name={run.id}",
        f"--nodes={request.nodes or 1}",
        f"--ntasks={request.nodes or 1}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={request.cpus}",
        "--mem=0",
        "--overlap",  # in a job of one node, Snakemake runs in a step of its own
        "--kill-on-bad-exit=0",  # tasks that stop on request all end with the same code ...
        "--wait=60",  # ... and after a failure the others end soon; seconds after the first one
    ]
    return ["srun", *flags, sys.executable, "-m", "resync", *request.on_node]


def place() -> Place:
    """This task's place among the nodes of its step.

    The nodes are in Slurm's order, so that ranks, and thus a topology, always map to machines in the same way. They
    meet on the first node, at the address by which Slurm itself reaches it. The port is a function of job and step id:
    two runs on a machine use different ports, and if a port is taken, the next step uses another one.
    """
    if missing := [name for name in ("SLURM_STEP_NODELIST", "SLURM_STEP_ID", "SLURM_NODEID") if name not in os.environ]:
        raise UserError(f"--on-node: found no {missing[0]}, allowed: within a step that srun has started")
    hosts = _ask("scontrol", "show", "hostnames", os.environ["SLURM_STEP_NODELIST"]).split()
    address = re.search(r"\bNodeAddr=(\S+)", _ask("scontrol", "show", "node", hosts[0]))
    assert address, f"Slurm knows no address of {hosts[0]}"
    port = PORTS[(int(os.environ[JOB]) * 31 + int(os.environ["SLURM_STEP_ID"])) % len(PORTS)]
    return Place(tuple(hosts), int(os.environ["SLURM_NODEID"]), address[1], port)


def requeue() -> None:
    """Let Slurm start this job again under the same id, unless it is being cancelled."""
    job = os.environ[JOB]
    try:
        if _ask("squeue", "--noheader", f"--jobs={job}", "--format=%T").strip() == "RUNNING":
            _ask("scontrol", "requeue", job)
            print(f"resync: Slurm job {job} goes back to the queue and continues from its checkpoint", flush=True)
    except (ConnectionError, UserError) as error:
        print(f"resync: Slurm does not requeue job {job}: {error}", file=sys.stderr, flush=True)


def _environment() -> dict[str, str]:
    """This process's environment without Slurm's variables for another step, which srun would take as its options."""
    kept = {JOB, "SLURM_CONF", "SLURM_CLUSTER_NAME"}
    return {name: value for name, value in os.environ.items() if not name.startswith("SLURM_") or name in kept}


def _ask(*command: str) -> str:
    """What Slurm answers. Raises ConnectionError with its own message, since another attempt may succeed."""
    try:
        done = subprocess.run(command, check=False, capture_output=True, encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{command[0]}: not installed here, in Slurm job {os.environ.get(JOB)}") from None
    if done.returncode:
        raise ConnectionError(f"{' '.join(command)}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout

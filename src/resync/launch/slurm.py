"""A run as a step of a Slurm job: one task a node, wherever the job was started from.

Also on one node: Slurm sends its signals to steps, and to the tasks themselves only, not to what they started.
"""

import os
import re
import signal
import subprocess
import sys

from resync.config import Run
from resync.launch.request import Place, Request
from resync.launch.stopping import ended

JOB = "SLURM_JOB_ID"


def inside() -> bool:
    """Whether this process belongs to a Slurm job."""
    return JOB in os.environ


def run(run: Run, request: Request) -> int:
    """Train on all nodes in a step of their own; the exit code."""
    # srun hands SIGUSR1 on to its tasks; SIGTERM would end it.
    return ended(step(run, request), _environment(), signal.SIGUSR1)


def step(run: Run, request: Request) -> list[str]:
    """The command line of one task a node, with all of the job's CPUs, memory and GPUs there."""
    flags = [
        f"--job-name={run.id}",
        f"--nodes={request.nodes}",
        f"--ntasks={request.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={request.cpus}",
        "--mem=0",
        "--overlap",  # a job of one node has Snakemake in a step of its own
        "--kill-on-bad-exit=0",  # all end alike when they stop as asked ...
        "--wait=60",  # ... and else soon, because of each other; seconds after the first one
    ]
    return ["srun", *flags, sys.executable, "-m", "resync", *request.on_node]


def place() -> Place:
    """This task's place among the nodes of its step.

    The nodes are in Slurm's order, so that ranks, and with them a topology, always map to machines alike. They meet on
    the first of them, at the address by which Slurm itself reaches it. The port is a function of the job and the
    step: two runs on a machine do not meet, and a step that found its port taken is followed by one with another.
    """
    hosts = _ask("scontrol", "show", "hostnames", os.environ["SLURM_STEP_NODELIST"]).split()
    address = re.search(r"\bNodeAddr=(\S+)", _ask("scontrol", "show", "node", hosts[0]))
    assert address, f"Slurm knows no address of {hosts[0]}"
    port = 20000 + (int(os.environ[JOB]) * 31 + int(os.environ["SLURM_STEP_ID"])) % 20000
    return Place(tuple(hosts), int(os.environ["SLURM_NODEID"]), address[1], port)


def requeue() -> None:
    """Let Slurm start this job again under the same number, unless somebody is cancelling it."""
    job = os.environ[JOB]
    try:
        if _ask("squeue", "--noheader", f"--jobs={job}", "--format=%T").strip() == "RUNNING":
            _ask("scontrol", "requeue", job)
            print(f"resync: Slurm job {job} goes back to the queue and continues from its checkpoint", flush=True)
    except subprocess.CalledProcessError as error:
        print(f"resync: Slurm does not requeue job {job}: {error.stderr.strip()}", file=sys.stderr, flush=True)


def _environment() -> dict[str, str]:
    """Without what Slurm has set for another step: srun would take it as its options."""
    kept = {JOB, "SLURM_CONF", "SLURM_CLUSTER_NAME"}
    return {name: value for name, value in os.environ.items() if not name.startswith("SLURM_") or name in kept}


def _ask(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout

"""The processes of a run on one machine: this one, ranks that are forked, or those of torchrun or DeepSpeed."""

import base64
import json
import os
import signal
import sys
from importlib.util import find_spec

from resync.base.errors import UserError
from resync.base.processes.exit_code import exit_code
from resync.runs.launch.request import Place, Request, train
from resync.runs.launch.stopping import ended, signal_children
from resync.runs.run import Run


def run(run: Run, request: Request, place: Place) -> int:
    """Train with this machine's share of the processes; return the exit code: 0, 1, 2, or if asked to stop 75 or 130.

    Raises ValueError if the launcher is not installed, or starts no processes on several machines or GPUs.
    """
    forked = run.device == "cpu" and len(place.hosts) == 1
    if request.launcher == "fork" and not forked:
        found = f"device {run.device} and {len(place.hosts)} machines"
        raise UserError(f"launcher fork: found {found}, allowed: device cpu on one machine, or launcher torchrun")
    if request.launcher == "deepspeed":
        if find_spec("deepspeed") is None:
            raise UserError("launcher deepspeed is not installed: pip install deepspeed")
        return ended(_deepspeed(run, request, place), dict(os.environ), _stop, (signal.SIGUSR1,))
    if run.processes == 1:
        return exit_code(lambda: train(run, request))
    # Not at the top: these import torch, which the processes of another launcher import for themselves.
    if request.launcher == "torchrun" or not forked:
        from resync.runs.launch import torchrun

        return torchrun.run(run, request, place)
    from resync.runs.launch import fork

    return fork.run(run, request)


def _stop(deepspeed: int) -> None:
    """Ask the ranks to stop: half a minute after a signal of its own, DeepSpeed's launcher would kill them."""
    if not signal_children(signal.SIGTERM, deepspeed):
        os.kill(deepspeed, signal.SIGTERM)  # it has not started any


def _deepspeed(run: Run, request: Request, place: Place) -> list[str]:
    """The command that `deepspeed --hostfile` would run on each machine."""
    slots = list(range(run.processes // len(place.hosts)))
    world = json.dumps({host: slots for host in place.hosts})
    flags = [
        f"--world_info={base64.urlsafe_b64encode(world.encode()).decode()}",
        f"--node_rank={place.index}",
        f"--master_addr={place.address}",
        f"--master_port={place.port or _free_port()}",
        "--no_local_rank",
        "--module",
    ]
    return [sys.executable, "-m", "deepspeed.launcher.launch", *flags, "resync", *request.training]


def _free_port() -> int:
    from socket import socket

    with socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])

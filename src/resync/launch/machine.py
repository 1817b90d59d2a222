"""The processes of a run on one machine: this one, ranks that it starts, or those of DeepSpeed's launcher."""

import base64
import json
import os
import signal
import sys
from importlib.util import find_spec

from resync.errors import UserError
from resync.launch.request import Place, Request, train
from resync.launch.stopping import ended
from resync.processes.exit_code import exit_code
from resync.run import Run


def run(run: Run, request: Request, place: Place) -> int:
    """Train with this machine's share of the processes; return the exit code: 0, 1, 2, or if asked to stop 75 or 130.

    Raises ValueError if DeepSpeed's launcher is requested but not installed.
    """
    if request.launcher == "deepspeed":
        if find_spec("deepspeed") is None:
            raise UserError("launcher deepspeed is not installed: pip install deepspeed")
        return ended(_deepspeed(run, request, place), dict(os.environ), signal.SIGTERM)
    if run.processes == 1:
        return exit_code(lambda: train(run, request))
    # Not at the top: this imports torch, which the processes of another launcher import for themselves.
    from resync.launch import ranks

    return ranks.run(run, request, place)


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

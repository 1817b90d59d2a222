"""The processes of a run on one machine, started by torch's or DeepSpeed's launcher."""

import base64
import json
import os
import signal
import sys
from importlib import import_module
from importlib.util import find_spec

from resync.config import Run
from resync.launch.request import Place, Request
from resync.launch.stopping import ended, passing_on, stop_asked, terminate_children
from resync.processes.exit_code import exit_code
from resync.processes.signals import STOP


def run(run: Run, request: Request, place: Place) -> int:
    """Train with this machine's share of the processes; return the exit code: 0, 1, 2, or 75 if asked to stop.

    Raises ValueError if DeepSpeed's launcher is requested but not installed.
    """
    if request.launcher == "deepspeed":
        if find_spec("deepspeed") is None:
            raise ValueError("launcher deepspeed is not installed: pip install deepspeed")
        return ended(_deepspeed(run, request, place), dict(os.environ), signal.SIGTERM)
    if run.processes == 1:
        return exit_code(lambda: _train(run, request))
    return _torchrun(run, request, place)


def _torchrun(run: Run, request: Request, place: Place) -> int:
    """As `torchrun`, but on the CPU the processes are forked from this one, which has imported torch."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from resync.launch.rendezvous import BACKEND

    if run.device == "cpu":
        # Imported once for all processes, which are forked from this one.
        for module in ("torch._dynamo", "resync.train"):
            import_module(module)
    settings = LaunchConfig(
        min_nodes=len(place.hosts),
        max_nodes=len(place.hosts),
        nproc_per_node=run.processes // len(place.hosts),
        run_id=run.hash,
        rdzv_backend=BACKEND,
        rdzv_endpoint=f"{place.address}:{place.port}",
        rdzv_configs={"timeout": request.timeout, "rank": place.index},
        max_restarts=0,  # either all machines restart or none
        start_method="fork" if run.device == "cpu" else "spawn",
        signals_to_handle="SIGINT,SIGHUP,SIGQUIT",
    )
    with passing_on(terminate_children):
        try:
            codes = elastic_launch(settings, _process)(request)
            return max(codes.values())
        except ChildFailedError as error:
            if stop_asked():
                return os.EX_TEMPFAIL
            rank, failure = error.get_first_failure()
            print(f"resync: error: {run.id}: rank {rank} ended with exit code {failure.exitcode}", file=sys.stderr)
            return failure.exitcode if failure.exitcode == 2 else 1
        except SignalException as stop:
            return 128 + stop.sigval


def _train(run: Run, request: Request) -> int:
    # Not at the top: this imports torch, which the processes of another launcher import for themselves.
    from resync.train import train

    return os.EX_OK if train(run, request.out, request.timeout) else os.EX_TEMPFAIL


def _process(request: Request) -> int:
    """Train one rank. Stopping on request must not look like a failure, after which torch would kill the others."""
    for number in STOP:
        signal.signal(number, signal.SIG_DFL)
    if stop_asked():
        return os.EX_TEMPFAIL
    # Read here because a run cannot be sent to a spawned process: its parts have classes made from declarations.
    code = exit_code(lambda: _train(request.run, request))
    if code not in (os.EX_OK, os.EX_TEMPFAIL):
        sys.exit(code)
    return code


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

"""The launcher `torchrun`: on every machine, an agent of torchrun in this process, which starts ranks as commands.

A rank that has finished is gone, and cannot be killed while the agent waits for another one. The ranks of a run start
again from the launcher of the run, on all machines, and not by their agents.
"""

import os
import sys

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous.api import RendezvousError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from resync.base.processes.signals import PARENT
from resync.runs.launch.request import Place, Request
from resync.runs.launch.stopping import code_of_ranks, passing_on, stop_asked, stop_code
from resync.runs.run import Run


def run(run: Run, request: Request, place: Place) -> int:
    """Train with this machine's share of the ranks; return the exit code: 0, 1, 2, or if asked to stop 75 or 130.

    Raises ConnectionError if the machines of the run do not meet within the request's timeout.
    """
    machines = len(place.hosts)
    config = LaunchConfig(
        min_nodes=machines,
        max_nodes=machines,
        nproc_per_node=run.processes // machines,
        run_id=f"resync-{place.port}",
        rdzv_backend="c10d",
        rdzv_endpoint=f"{place.address}:{place.port}",
        rdzv_configs={"is_host": place.index == 0, "read_timeout": request.timeout, "join_timeout": request.timeout},
        # The agents sort machines by these names, and the ranks meet at the first one.
        local_addr=place.address if place.index == 0 else f"~{place.index:06}",
        max_restarts=0,
        # Not those that ask a run to stop: half a minute after one of them torch's agent kills the ranks.
        signals_to_handle="SIGQUIT",
    )
    os.environ[PARENT] = str(os.getpid())
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    try:
        with passing_on():
            elastic_launch(config, sys.executable)("-m", "resync", *request.training)
    except ChildFailedError as ended:
        return code_of_ranks(run, {rank: failure.exitcode for rank, failure in ended.failures.items()})
    except RendezvousError as error:
        if stop_asked():  # the machine that holds the store has ended before this one has seen its own ranks end
            return stop_code()
        where = f"{place.address}:{place.port}"
        raise ConnectionError(f"the processes of a run cannot meet at {where}: {error.__cause__ or error}") from error
    finally:
        del os.environ[PARENT]
    return os.EX_OK

"""A run from the first attempt to the last, in a Slurm job or outside of one."""

import os
import signal
from collections.abc import Callable

from resync.config import Run
from resync.launch import machine, slurm
from resync.launch.request import Place, Request
from resync.processes.lock import locked
from resync.results import state

_FINAL = {os.EX_OK, 2, os.EX_TEMPFAIL, 128 + signal.SIGINT}
"""Exit codes after which a restart would end alike, or is not wanted now."""

HERE = Place(hosts=("localhost",), index=0, address="127.0.0.1", port=0)


def launch(request: Request, on_node: bool) -> int:
    """Train a run with its number of processes, spread evenly over its nodes; all but the first job for it wait.

    In a Slurm job, srun starts `resync launch --on-node` on every node, and each starts its own processes. Returns
    the exit code: 75 when the run was asked to stop and has left a checkpoint, where Slurm is told to start the job
    again; 1 when a process failed, which has said why. Raises ConfigError for a wrong configuration, and ValueError
    for several nodes without Slurm, before anything is started.
    """
    run = Run.from_file(request.config)
    # One thread per process unless the run says otherwise: it is the workers that run in parallel.
    os.environ["OMP_NUM_THREADS"] = str(run.threads)
    if on_node:
        return machine.run(run, request, slurm.place())
    with locked(request.out), state.failures_recorded(request.out, run):
        state.begin(request.out, run)
        if not slurm.inside():
            if request.nodes > 1:
                raise ValueError(f"found {request.nodes} nodes outside of a Slurm job, allowed there: 1")
            code = _restarted(run, request, lambda: machine.run(run, request, HERE))
            state.conclude(request.out, run, code)
            return code
        code = _restarted(run, request, lambda: slurm.run(run, request))
        state.conclude(request.out, run, code)
        if code == os.EX_TEMPFAIL:
            slurm.requeue()
        return code


def _restarted(run: Run, request: Request, attempt: Callable[[], int]) -> int:
    """The exit code of the first attempt that does not fail, or of the last; each starts all processes again."""
    for restart in range(request.max_restarts):
        code = attempt()
        if code in _FINAL:
            return code
        print(f"resync: {run.id}: exit code {code}, restart {restart + 1} of {request.max_restarts}", flush=True)
    return attempt()

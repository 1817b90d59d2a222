"""All attempts at a run, inside or outside a Slurm job."""

import os
import sys
from collections.abc import Callable

from resync.base.errors import UserError
from resync.base.files import clear_leftovers, delete_folder
from resync.base.processes.exit_code import MISTAKE
from resync.base.processes.lock import locked
from resync.base.processes.signals import INTERRUPTED
from resync.base.processes.surroundings import OF_A_LAUNCHER
from resync.runs.launch import hosts, machine, slurm, stopping
from resync.runs.launch.request import Place, Request
from resync.runs.results import state
from resync.runs.results.summary import has_results, refuse_other_results
from resync.runs.run import Run

_FINAL = {os.EX_OK, MISTAKE, os.EX_TEMPFAIL, INTERRUPTED}
"""Exit codes after which a restart would end in the same way or is not wanted now."""

HERE = Place(hosts=("localhost",), index=0, address="127.0.0.1", port=0)


def launch(request: Request, on_node: bool) -> int:
    """Train a run with its processes spread evenly over its nodes; further jobs for the same run wait.

    In a Slurm job, srun starts `resync launch --on-node` on every node, which starts the processes of that node;
    outside, a user starts it on every host of a hostfile, of which the first one has the lock and the state of the run.
    Returns the exit code: 75 if the run was asked to stop and has written a checkpoint, in which case Slurm is told to
    requeue the job; 130 if Ctrl-C asked for it; 1 if a process failed, after a message that says why. Before anything
    is started, raises ConfigError for a wrong configuration, and ValueError for several nodes without Slurm or a
    hostfile, or if the `attempt` before ended with a mistake that no further one can mend.
    """
    if request.attempt:
        _keep_log(request)
    run = request.run
    run.refuse_declared_folder(request.out)
    refuse_other_results(request.out, run.hash)
    # One thread per process unless the run says otherwise: the parallelism is over workers.
    os.environ["OMP_NUM_THREADS"] = str(run.threads)
    # Below another program's torchrun, the processes would take its variables for those of a launcher of theirs.
    for name in [name for name in os.environ if name.startswith("TORCHELASTIC_") or name in OF_A_LAUNCHER]:
        del os.environ[name]
    if on_node:
        return machine.run(run, request, slurm.place())
    place = HERE
    if request.hostfile and request.nodes != 1 and not slurm.inside():
        place = hosts.place(run, request)
    if place.index:
        return os.EX_OK if has_results(request.out, run.hash) else machine.run(run, request, place)
    with locked(request.out):
        refuse_other_results(request.out, run.hash)  # of the job that this one has waited for
        if request.attempt > 1:
            state.refuse_mistake(request.out, run)
        with state.failures_recorded(request.out, run):
            return _attempts(run, request, place)


def _keep_log(request: Request) -> None:
    """Give the log of this attempt a second name, with its number, and take those of an earlier workflow away.

    The workflow deletes the log as the next attempt starts, when its reader may not have come to it.
    """
    log = request.out / "train.log"
    if log.exists():
        for earlier in request.out.glob("train.*.log") if request.attempt == 1 else ():
            earlier.unlink()
        kept = request.out / f"train.{request.attempt}.log"
        kept.unlink(missing_ok=True)
        kept.hardlink_to(log)


def _attempts(run: Run, request: Request, place: Place) -> int:
    """The exit code of a run that no other job trains; 0 at once if it has its results."""
    asked = request.out / state.ANEW
    if not asked.exists() and has_results(request.out, run.hash):
        state.clear(request.out)  # of a job that was killed before it could
        print(f"resync: {run.id}: has its results in {request.out}", flush=True)
        return os.EX_OK
    state.begin(request.out, run)
    if asked.exists():
        print(f"resync: {run.id}: trains again from its first step, as asked", flush=True)
        if (checkpoints := request.out / "checkpoint").exists():
            delete_folder(checkpoints)
        asked.unlink()
    with stopping.remembered():
        code = _restarted(run, request, _attempt(run, request, place))
    last = state.conclude(request.out, run, code)
    if code not in _FINAL:
        code = 1  # srun and DeepSpeed's launcher end with a number of their own where a rank was killed
    if last and code == 1:
        print(f"resync: {run.id}: failed: {last.reason}", file=sys.stderr)  # not only which process has ended first
    if last and last.state == "failed" and code in (os.EX_TEMPFAIL, INTERRUPTED):
        # Such as a checkpoint that could not be written: started again, it would end in the same way for ever.
        print(f"resync: error: {run.id}: failed when it was asked to stop", file=sys.stderr)
        return 1
    if slurm.inside() and code == os.EX_TEMPFAIL:
        slurm.requeue()
    return code


def _attempt(run: Run, request: Request, place: Place) -> Callable[[], int]:
    """What starts the processes and returns their exit code: all of a Slurm job, or those at this machine's place."""
    if slurm.inside():
        slurm.require_commands()
        return lambda: slurm.run(run, request)
    if (request.nodes or 1) > len(place.hosts):
        raise UserError(f"found {request.nodes} nodes outside a Slurm job, allowed there: 1, or --hostfile")
    return lambda: machine.run(run, request, place)


def _restarted(run: Run, request: Request, attempt: Callable[[], int]) -> int:
    """Exit code of the first attempt that does not fail, or of the last one; each attempt starts all processes."""
    for restart in range(request.max_restarts):
        code = attempt()
        if code in _FINAL or stopping.stop_asked():
            return code
        print(f"resync: {run.id}: exit code {code}, restart {restart + 1} of {request.max_restarts}", flush=True)
        clear_leftovers(request.out)
        state.begin(request.out, run)
    return attempt()

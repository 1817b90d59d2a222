"""How the processes of a run are started: here, or by torchrun on every node of a Slurm job."""

import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from resync.config import Run


def launch(config: Path, out: Path, nodes: int, resync: Callable[[list[str]], int]) -> int:
    """Train the run of `config` into `out` with its number of processes, spread evenly over `nodes` machines.

    Each process is the command line `resync train ...`, which `resync` runs. Returns the exit code: 1 when a process
    failed, which has said why. Raises ConfigError when `config` is wrong, before anything is started.
    """
    run = Run.from_file(config)
    training = ["train", "--config", str(config), "--out", str(out)]
    # One thread a process unless the run says otherwise: the workers are what runs in parallel.
    os.environ["OMP_NUM_THREADS"] = str(run.threads)
    if nodes > 1:
        command = on_slurm(run, training, nodes)
        os.execvp(command[0], command)
    return resync(training) if run.processes == 1 else _on_this_machine(run, training, resync)


def _on_this_machine(run: Run, training: list[str], resync: Callable[[list[str]], int]) -> int:
    """As `torchrun --standalone`, but the processes are forked from one that has imported torch, where they may be."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    if run.device == "cpu":
        # Once for all processes, which are forked from here.
        for module in ("torch._dynamo", "resync.train"):
            import_module(module)
    settings = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=run.processes,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        start_method="fork" if run.device == "cpu" else "spawn",
    )
    try:
        elastic_launch(settings, _process)(resync, training)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        print(f"resync: error: {run.id}: rank {rank} ended with exit code {failure.exitcode}", file=sys.stderr)
        return 1
    return 0


def _process(resync: Callable[[list[str]], int], training: list[str]) -> None:
    if code := resync(training):
        sys.exit(code)


def on_slurm(run: Run, training: list[str], nodes: int) -> list[str]:
    """The command line of one torchrun a node, ranks in node order so that a topology always maps to machines alike.

    The node variables are read inside the task, where Slurm always sets them. The port is a function of the job, so
    that two runs on the same machines do not meet.
    """
    rendezvous = (
        '--nnodes="$SLURM_NNODES" --node-rank="$SLURM_NODEID" '
        '--master-addr="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)" '
        "--master-port=$((20000 + SLURM_JOB_ID % 20000))"
    )
    script = f'exec "$0" -m torch.distributed.run {rendezvous} "$@"'
    flags = [f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--kill-on-bad-exit=1"]
    processes = f"--nproc-per-node={run.processes // nodes}"
    return ["srun", *flags, "bash", "-c", script, sys.executable, processes, "-m", "resync", *training]

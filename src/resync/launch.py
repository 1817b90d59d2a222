"""How the processes of a run are started: here, by torchrun, or by torchrun on every node of a Slurm job."""

import os
import sys
from pathlib import Path

from resync.config import Run


def launch(config: Path, out: Path, nodes: int = 1) -> None:
    """Replace this process by the one(s) that train the run of `config` into `out`.

    Raises ConfigError when `config` is wrong, before anything is started.
    """
    run = Run.from_file(config)
    arguments = command(run, config, out, nodes)
    # One thread a process unless the run says otherwise: the workers are what runs in parallel.
    os.environ["OMP_NUM_THREADS"] = str(run.threads)
    os.execvp(arguments[0], arguments)


def command(run: Run, config: Path, out: Path, nodes: int = 1) -> list[str]:
    """The command line that trains `run` with its number of processes, spread evenly over `nodes` machines."""
    training = ["-m", "resync", "train", "--config", str(config), "--out", str(out)]
    if run.processes == 1:
        return [sys.executable, *training]
    torchrun = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={run.processes // nodes}"]
    if nodes == 1:
        return [*torchrun, "--standalone", *training]
    return _on_slurm(nodes, [*torchrun, *training])


def _on_slurm(nodes: int, torchrun: list[str]) -> list[str]:
    """One torchrun a node, with the ranks in node order so that a topology maps to machines the same way each time.

    The node variables are read inside the task, where Slurm always sets them. The port is a function of the job, so
    that two runs on the same machines do not meet.
    """
    interpreter, module, name, *rest = torchrun
    rendezvous = (
        '--nnodes="$SLURM_NNODES" --node-rank="$SLURM_NODEID" '
        '--master-addr="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)" '
        "--master-port=$((20000 + SLURM_JOB_ID % 20000))"
    )
    script = f'exec "$0" "$1" "$2" {rendezvous} "${{@:3}}"'
    flags = [f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--kill-on-bad-exit=1"]
    return ["srun", *flags, "bash", "-c", script, interpreter, module, name, *rest]

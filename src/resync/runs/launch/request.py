"""A request to train a run, and the place of one machine among those of the run."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from resync.runs.run import Run

PORTS = range(20000, 32768)
"""Where the processes of several machines meet: below the ports that Linux gives to outgoing connections."""


@dataclass(frozen=True)
class Request:
    """A run's configuration file and output folder, and the part of its `resources` that its processes depend on.

    Without `nodes`, it is on all hosts of the hostfile, of which this machine is `node_rank`, or on this machine.
    `attempt` counts the starts by a workflow.
    """

    config: Path
    out: Path
    timeout: int
    nodes: int | None
    cpus: int
    launcher: Literal["auto", "fork", "torchrun", "deepspeed"]
    max_restarts: int
    overrides: tuple[str, ...] = ()
    hostfile: Path | None = None
    node_rank: int | None = None
    attempt: int = 0

    @property
    def run(self) -> Run:
        """The run, read from its file. Raises ConfigError."""
        return Run.from_file(self.config, overrides=self.overrides)

    @property
    def training(self) -> list[str]:
        """Arguments of `resync` for a process that another program starts."""
        changes = [f"--set={override}" for override in self.overrides]
        return ["train", "--config", str(self.config), "--out", str(self.out), "--timeout", str(self.timeout), *changes]

    @property
    def on_node(self) -> list[str]:
        """Arguments of `resync` for the task on each node; restarts are left to the job."""
        start = ["--nodes", str(self.nodes or 1), "--cpus", str(self.cpus), "--launcher", self.launcher]
        return ["launch", *self.training[1:], *start, "--on-node"]


@dataclass(frozen=True)
class Place:
    """The machines of a run as seen by one of them: their names, its own index, and the common address and port."""

    hosts: tuple[str, ...]
    index: int
    address: str
    port: int


def train(run: Run, request: Request) -> int:
    """Train in this process; return the exit code: 0, or 75 if asked to stop."""
    # Not at the top: this imports torch, which launchers need not.
    from resync.runs.train import train

    return os.EX_OK if train(run, request.out, request.timeout) else os.EX_TEMPFAIL

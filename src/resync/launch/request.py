"""A request to train a run, and the place of one machine among those of the run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from resync.config import Run


@dataclass(frozen=True)
class Request:
    """A run's configuration file and output folder, and the part of its `resources` that its processes depend on."""

    config: Path
    out: Path
    timeout: int
    nodes: int
    cpus: int
    launcher: Literal["torchrun", "deepspeed"]
    max_restarts: int
    overrides: tuple[str, ...] = ()

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
        start = ["--nodes", str(self.nodes), "--cpus", str(self.cpus), "--launcher", self.launcher]
        return ["launch", *self.training[1:], *start, "--on-node"]


@dataclass(frozen=True)
class Place:
    """The machines of a run as seen by one of them: their names, its own index, and the common address and port."""

    hosts: tuple[str, ...]
    index: int
    address: str
    port: int

"""A request to train a run, and the place of one machine among those that train it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Request:
    """A run and how it is started: the run's configuration, and its `resources` as far as its processes see them."""

    config: Path
    out: Path
    timeout: int
    nodes: int
    cpus: int
    launcher: Literal["torchrun", "deepspeed"]
    max_restarts: int

    @property
    def training(self) -> list[str]:
        """The command line of a process that another program starts, for `resync`."""
        return ["train", "--config", str(self.config), "--out", str(self.out), "--timeout", str(self.timeout)]

    @property
    def on_node(self) -> list[str]:
        """The command line of each node's task, for `resync`; restarts are not a task's business."""
        start = ["--nodes", str(self.nodes), "--cpus", str(self.cpus), "--launcher", self.launcher]
        return ["launch", *self.training[1:], *start, "--on-node"]


@dataclass(frozen=True)
class Place:
    """The machines of a run as one of them sees it: their names, its own index, and where all meet."""

    hosts: tuple[str, ...]
    index: int
    address: str
    port: int

"""How the processes of a run are started, stopped and started again: on this machine, or on those of a Slurm job."""

from resync.launch.attempts import launch
from resync.launch.request import Request

__all__ = ["Request", "launch"]

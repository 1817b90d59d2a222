"""Start, stop and restart of the processes of a run: here, or on the nodes of a Slurm job or hostfile."""

from resync.runs.launch.attempts import launch
from resync.runs.launch.request import Request

__all__ = ["Request", "launch"]

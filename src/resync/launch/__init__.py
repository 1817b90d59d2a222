"""Start, stop and restart of the processes of a run, on this machine or on the nodes of a Slurm job."""

from resync.launch.attempts import launch
from resync.launch.request import Request

__all__ = ["Request", "launch"]

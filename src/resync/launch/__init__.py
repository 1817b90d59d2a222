"""Start, stop and restart of the processes of a run: here, on the hosts of a hostfile, on the nodes of a Slurm job."""

from resync.launch.attempts import launch
from resync.launch.hosts import run_part
from resync.launch.request import Request

__all__ = ["Request", "launch", "run_part"]

"""How the processes of a run are started, stopped and started again: on this machine, or on those of a Slurm job."""

from resync.launch.start_run import Start, launch

__all__ = ["Start", "launch"]

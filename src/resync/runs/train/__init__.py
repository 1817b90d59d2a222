"""Training of one run: the loop, evaluation, checkpoints and logs."""

from resync.runs.train.run import train

__all__ = ["train"]

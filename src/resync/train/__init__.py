"""Training of one run: the loop, evaluation, checkpoints and logs."""

from resync.train.run import train

__all__ = ["train"]

"""Data sets that are converted once: from the original images, wherever they come from, to one file for training."""

from resync.prepare.convert import declared, prepare
from resync.prepare.properties import check
from resync.prepare.store import Prepared, data_root, load

__all__ = ["Prepared", "check", "data_root", "declared", "load", "prepare"]

"""One-time conversion of data sets from the original images or texts to a form for training."""

from resync.tasks.prepare.availability import download
from resync.tasks.prepare.characters import CharacterText
from resync.tasks.prepare.convert import check, declared, prepare
from resync.tasks.prepare.folders import data_root
from resync.tasks.prepare.prepared_file import Prepared, Split, load, read
from resync.tasks.prepare.stream import Stream, load_stream
from resync.tasks.prepare.text import ParallelCorpus

__all__ = [
    "CharacterText", "ParallelCorpus", "Prepared", "Split", "Stream",
    "check", "data_root", "declared", "download", "load", "load_stream", "prepare", "read",
]  # fmt: skip

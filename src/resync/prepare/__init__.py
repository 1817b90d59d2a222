"""One-time conversion of data sets from the original images or texts to a form for training."""

from resync.prepare.availability import download
from resync.prepare.characters import CharacterText
from resync.prepare.convert import check, declared, prepare
from resync.prepare.folders import data_root
from resync.prepare.prepared_file import Prepared, Split, load, read
from resync.prepare.stream import Stream, load_stream
from resync.prepare.text import ParallelCorpus

__all__ = [
    "CharacterText", "ParallelCorpus", "Prepared", "Split", "Stream",
    "check", "data_root", "declared", "download", "load", "load_stream", "prepare", "read",
]  # fmt: skip

"""A small text shipped with the package, so that a language model needs no download."""

import hashlib
from functools import cache
from pathlib import Path

from resync.tasks.data.characters import Characters
from resync.tasks.data_sets.declaration import data_set
from resync.tasks.prepare.characters import CharacterText, divide

FILE = Path(__file__).with_suffix(".txt")


def build(context: int) -> Characters:
    """The file in windows of `context` characters."""
    return Characters.of(_text(), context, "sonnets", hashlib.sha256(FILE.read_bytes()).hexdigest())


@cache
def _text() -> CharacterText:
    return divide(data_set("sonnets"), FILE.read_text(encoding="utf-8"))

"""A small parallel corpus shipped with the package, so that translation needs no download."""

import hashlib
from functools import cache
from pathlib import Path

from resync.base.files import lines_of
from resync.tasks.data.text import ParallelText
from resync.tasks.data_sets.declaration import data_set
from resync.tasks.prepare.text import Lines, ParallelCorpus, encode

FILE = Path(__file__).with_suffix(".tsv")


def build(max_tokens: int) -> ParallelText:
    """400 training, 40 validation and 40 test pairs, in the order of the file."""
    return ParallelText(_corpus(), max_tokens, "sentences", hashlib.sha256(FILE.read_bytes()).hexdigest())


@cache
def _corpus() -> ParallelCorpus:
    of = data_set("sentences")
    pairs = [line.split("\t") for line in lines_of(FILE.read_text(encoding="utf-8"))]
    lines: dict[str, Lines] = {}
    for split in ("train", "val", "test"):
        chosen, pairs = pairs[: of.facts[f"{split}_samples"]], pairs[of.facts[f"{split}_samples"] :]
        lines[split] = [pair[0] for pair in chosen], [pair[1] for pair in chosen]
    return encode(of, lines)

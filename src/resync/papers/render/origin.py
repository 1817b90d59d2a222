"""What a figure was drawn from: a line in the metadata of its PNG, PDF and SVG, and how it is read again."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Self

from resync.runs.results.runs import RunState
from resync.runs.results.summary import commits

_FORM = re.compile(
    rb"resync: (?P<item>[\w./-]+) at (?P<scale>\w+) scale; data sha256:(?P<data>[0-9a-f]{64}); "
    rb"commits(?P<commits>[ 0-9a-f]*); runs(?P<runs>[ 0-9a-f]*)"
)


@dataclass(frozen=True)
class Origin:
    """An item `paper/name` and its scale, the SHA-256 of its CSV, the commits that trained its runs, and their hashes.

    The commit that draws is not among them: it would change every figure with every commit, and all that it can change
    is seen in the figure or in its CSV.
    """

    item: str
    scale: str
    data: str
    commits: tuple[str, ...]
    runs: tuple[str, ...]

    @classmethod
    def of(cls, item: str, scale: str, csv: bytes, states: Iterable[RunState]) -> Self:
        """That of an item drawn from the runs that have ended, or, where none has, from what is declared of them."""
        states = list(states)
        ended = [state for state in states if state.has_ended and state.result]
        gits = [git for state in ended if state.result for git in commits(state.result.summary)]
        names = sorted({git["commit"][:10] for git in gits if git.get("commit")})
        hashes = [state.run.hash for state in ended or states]
        return cls(item, scale, sha256(csv).hexdigest(), tuple(names), tuple(dict.fromkeys(hashes)))

    def __str__(self) -> str:
        """One line of plain letters, which all three formats keep as it is."""
        return (
            f"resync: {self.item} at {self.scale} scale; data sha256:{self.data}; commits {' '.join(self.commits)}; "
            f"runs {' '.join(self.runs)}"
        )


def read_origin(file: bytes) -> Origin | None:
    """What a PNG, PDF or SVG says that it was drawn from; None for one that does not say it."""
    if (match := _FORM.search(file)) is None:
        return None
    text = {name: value.decode() for name, value in match.groupdict().items()}
    of, runs = (tuple(text[name].split()) for name in ("commits", "runs"))
    return Origin(text["item"], text["scale"], text["data"], of, runs)

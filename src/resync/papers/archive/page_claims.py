"""Tables of claims for pages, from the audits of the committed results."""

from collections.abc import Iterator, Mapping
from itertools import compress
from typing import Any

from resync.base.errors import UserError
from resync.base.files import read_json
from resync.base.settings.errors import not_among
from resync.base.text_tables import markdown_text, pipe_table
from resync.papers.archive.build import ArchiveFolders
from resync.papers.audit.in_words import effect_in_words, said
from resync.papers.audit.score import is_tested
from resync.papers.paper import Suite
from resync.runs.results.seed_values import decimals_for, notation

_HEADINGS = ["claim", "source", "mean ± standard deviation over seeds", "claimed", "effect (interval of the test)", "n",
             "power", "verdict"]  # fmt: skip

_POWER = _HEADINGS.index("power")


def claims(suite: Suite, place: ArchiveFolders, of: str, *ids: str) -> Iterator[str]:
    """A row per claim of `of`, a scale and a paper as in `mini/sgp`, in the given order, and what was trained for them.

    The power is that against the published effect, and left out where no claim has one. Raises ValueError for a scale
    without results, and for an unknown paper or claim.
    """
    scale, _, paper = of.partition("/")
    file = place.archive / scale / "audit.json"
    if not file.exists():
        raise UserError(f"claims {of}: {file}: missing, allowed: a scale with results")
    if paper not in suite.papers:
        raise UserError(f"claims {of}: {not_among(paper, suite.papers)}")
    known = {claim["id"]: claim for claim in read_json(file)["claims"] if claim["paper"] == paper}
    for name in ids:
        if name not in known:
            raise UserError(f"claims {of}: {not_among(name, known)}")
    declared = {claim.id: claim.statement for claim in suite.papers[paper].claims}
    rows = [_row(known[name], declared.get(name, known[name]["statement"])) for name in ids]
    keep = [column != _POWER or any(row[column] for row in rows) for column in range(len(_HEADINGS))]
    table = [[*compress(row, keep)] for row in (_HEADINGS, *rows)]
    yield from pipe_table(table[0], table[1:], "".join(compress("lllrlrrl", keep)))
    if trained := dict.fromkeys(filter(None, (said(known[name])[1] for name in ids))):
        yield from ("", f"Trained: {'; '.join(trained)}.")


def _row(claim: Mapping[str, Any], statement: str) -> list[str]:
    counts = dict.fromkeys(count for effect in claim["effects"] for count in effect["n"] or ())
    return [
        markdown_text(statement),
        claim["status"],
        "<br>".join(f"{markdown_text(side['label'])}: {_ours(side['ours'])}" for side in claim["sides"]),
        f"{claim['at_least']:+g}",
        "<br>".join(effect_in_words(effect, claim["unit"]) for effect in claim["effects"]),
        ", ".join(map(str, counts)),
        "" if claim["power"] is None else f"{100 * claim['power']:.0f} %",
        ", ".join(filter(None, [f"**{claim['verdict']}**", *_beside(claim)])),
    ]


def _beside(claim: Mapping[str, Any]) -> Iterator[str]:
    """What qualifies a verdict."""
    if not is_tested(claim):
        yield claim["because"]
    elif claim["exploratory"]:
        yield "exploratory"
    if claim["survives"] is False:
        yield "not after the correction for many tests"


def _ours(ours: Mapping[str, Any]) -> str:
    if ours["mean"] is None:
        return str(ours["text"])
    return notation(ours["mean"], ours["std"], decimals=decimals_for(ours["std"] or 0.0))

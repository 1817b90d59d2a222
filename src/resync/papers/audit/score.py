"""How many claims of papers and published numbers there are, and what came out: the one count that everything shows.

Claims that were fixed only when runs that decide them had been seen are exploratory, and counted apart. Lines are those
of `audit.json`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from resync.papers.audit.rows import CLAIM, MEASURED
from resync.papers.audit.verdicts import AGREES, DISAGREES, OPEN, SMALLER, UNTESTED, VERDICTS

STATUSES = ("verified", "secondary", "derived", "unverified")
"""How certain it is that a paper makes a claim, the most certain first."""
TESTED = tuple(word for word in VERDICTS if word != UNTESTED)
_VERBS = {AGREES: ("agrees", "agree"), SMALLER: ("is smaller", "are smaller"), DISAGREES: ("disagrees", "disagree"),
          OPEN: ("is open", "are open")}  # fmt: skip

Line = Mapping[str, Any]


def counts(lines: Iterable[Line]) -> dict[str, int]:
    """Number of lines per verdict, in the order of `VERDICTS`."""
    numbers = Counter(line["verdict"] for line in lines)
    return {word: numbers[word] for word in VERDICTS if numbers[word]}


def claims_of_papers(lines: Iterable[Line], scale: str) -> list[Line]:
    """Of the lines of a scale's audit, the claims of papers that this scale is declared to test."""
    return [line for line in lines if line["kind"] == CLAIM and scale in line["scales"]]


def score(lines: Iterable[Line], scale: str) -> dict[str, Any]:
    """Of the claims of papers at a scale and the measured published numbers: how many have each verdict, and why.

    `claims` has them by status (`STATUSES`), those that are exploratory apart, `numbers` all together, and `because`
    both by reason; `papers` the same of each paper.
    """
    lines = list(lines)
    papers = dict.fromkeys(line["paper"] for line in lines)
    of_papers = {name: _of([line for line in lines if line["paper"] == name], scale) for name in papers}
    return _of(lines, scale) | {"papers": of_papers}


def _of(lines: list[Line], scale: str) -> dict[str, Any]:
    claims = claims_of_papers(lines, scale)
    numbers = [line for line in lines if line["kind"] == MEASURED]
    return {
        "claims": {status: counts(line for line in claims if line["status"] == status and not is_exploratory(line))
                   for status in STATUSES},
        "exploratory": {status: counts(line for line in claims if line["status"] == status and is_exploratory(line))
                        for status in STATUSES},
        "numbers": counts(numbers),
        "because": {name: dict(Counter(line["because"] for line in of))
                    for name, of in (("claims", claims), ("numbers", numbers))},
    }  # fmt: skip


def is_tested(line: Line) -> bool:
    """Whether runs say something of a claim or number, also where they leave it open."""
    return bool(line["verdict"] != UNTESTED)


def is_exploratory(line: Line) -> bool:
    """Whether a claim is tested, but was fixed too late for its test to confirm it."""
    return is_tested(line) and bool(line["exploratory"])


def counted_in_words(claims: Iterable[Line]) -> str:
    """`of 143 claims 4 are tested: 3 agree, 1 is open; 40 are exploratory: 30 agree, 10 disagree; 99 are untested`."""
    claims = list(claims)
    explored = [claim for claim in claims if is_exploratory(claim)]
    confirmed = [claim for claim in claims if is_tested(claim) and not is_exploratory(claim)]
    rest = len(claims) - len(confirmed) - len(explored)
    parts = [
        f"of {len(claims)} claim{'s' if len(claims) != 1 else ''} {_are(len(confirmed))} tested{_words(confirmed)}"
    ]
    parts += [f"{_are(len(explored))} exploratory{_words(explored)}"] if explored else []
    parts += [f"{_are(rest)} untested"] if rest else []
    return "; ".join(parts)


def _are(count: int) -> str:
    return f"{count or 'none'} {'are' if count > 1 else 'is'}"


def _words(claims: Iterable[Line]) -> str:
    numbers = counts(claims)
    return ": " + ", ".join(f"{count} {_VERBS[word][count > 1]}" for word, count in numbers.items()) if numbers else ""

"""The totals of an audit and the sentences made from them: the same on every page, in JSON and on the terminal.

What was measured, what follows from the configuration and what logs of others say are counted apart, and so is the
check that runs did their planned rounds, which says nothing about a paper.
"""

from collections import Counter
from collections.abc import Iterable

from resync.audit.rows import (
    CLAIM,
    COMPUTED,
    LOG_CLAIM,
    LOGS,
    MEASURED,
    OWN_CLAIM,
    OWN_REFERENCE,
    ROUNDS,
    Audit,
    ClaimRow,
    ValueRow,
)
from resync.audit.verdicts import VERDICTS
from resync.run.in_words import counted, tallied
from resync.run.run import SCALES

KINDS = {
    "measured": (MEASURED, "published number", "that training measures"),
    "own_references": (OWN_REFERENCE, "reference", "of our own, which nobody published"),
    "computed": (COMPUTED, "number", "computed from the configuration, without a run"),
    "claims": (CLAIM, "claim", "of papers"),
    "own_claims": (OWN_CLAIM, "claim", "of our own"),
    "logs": (LOGS, "mean", "of logs that others published"),
    "comparisons": (LOG_CLAIM, "comparison", "of such logs"),
    "rounds": (ROUNDS, "check", "of planned rounds"),
}
"""By the name in the totals: the kind of lines, and what one of them is called."""


def totals(audit: Audit) -> dict[str, dict[str, int]]:
    """The number of lines of each kind per verdict, in the order of `VERDICTS`."""
    return {name: counts(line for line in audit.lines if line.kind == kind) for name, (kind, *_) in KINDS.items()}


def headline_states(audit: Audit) -> dict[str, dict[str, int]]:
    """By paper, how many of its headline claims and numbers are in each state (`score.STATES`)."""
    found: dict[str, Counter[str]] = {}
    for line in audit.lines:
        if line.headline:
            found.setdefault(line.paper, Counter())[line.state] += 1
    return {paper: dict(states) for paper, states in found.items()}


def counts(rows: Iterable[ValueRow | ClaimRow]) -> dict[str, int]:
    """Number of rows per verdict, in the order of `VERDICTS`."""
    found = Counter(row.verdict for row in rows)
    return {word: found[word] for word in VERDICTS if found[word]}


def headline(audit: Audit) -> tuple[str, ...]:
    """The states of headline claims by paper, verdicts by kind of line, and which command shows other scales."""
    sentences = [
        f"{audit.papers[paper].name}: {counted([sum(states.values())], 'headline claim')}: {tallied(states)}."
        for paper, states in headline_states(audit).items()
    ]
    for name, found in totals(audit).items():
        _, noun, which = KINDS[name]
        sentences += [f"{counted([sum(found.values())], noun)} {which}: {tallied(found)}."] if found else []
    smallest = Counter(min(claim.scales, key=SCALES.index) for claim in audit.claims if audit.scale not in claim.scales)
    for scale in SCALES:
        if smallest[scale]:
            sentences.append(f"{counted([smallest[scale]], 'claim')} of {scale} scale: `make reproduce SCALE={scale}`.")
    if audit.damaged_runs:
        sentences.append(f"{counted([len(audit.damaged_runs)], 'damaged run')}.")
    return tuple(filter(None, sentences))


def sentence(audit: Audit) -> str:
    """The headline as one text."""
    return " ".join(headline(audit))

"""The totals of an audit and the sentences made from them: the same on every page, in JSON and on the terminal.

What was measured, what follows from the configuration and what logs of others say are counted apart.
"""

from collections import Counter

from resync.papers.audit.rows import (
    CLAIM,
    COMPUTED,
    LOG_CLAIM,
    LOGS,
    MEASURED,
    OWN_CLAIM,
    OWN_REFERENCE,
    Audit,
)
from resync.papers.audit.score import claims_of_papers, counted_in_words, counts
from resync.runs.run.in_words import counted, tallied
from resync.runs.run.run import SCALES

KINDS = {
    "measured": (MEASURED, "published number", "that training measures"),
    "own_references": (OWN_REFERENCE, "reference", "of our own, which nobody published"),
    "computed": (COMPUTED, "number", "computed from the configuration, without a run"),
    "claims": (CLAIM, "claim", "of papers"),
    "own_claims": (OWN_CLAIM, "claim", "of our own"),
    "logs": (LOGS, "mean", "of logs that others published"),
    "comparisons": (LOG_CLAIM, "comparison", "of such logs"),
}
"""By the name in the totals: the kind of lines, and what one of them is called."""


def totals(audit: Audit) -> dict[str, dict[str, int]]:
    """The number of lines of each kind per verdict, in the order of `VERDICTS`."""
    lines = list(map(vars, audit.lines))
    return {name: counts(line for line in lines if line["kind"] == kind) for name, (kind, *_) in KINDS.items()}


def headline(audit: Audit) -> tuple[str, ...]:
    """What came of claims, of headline claims by paper and of other lines; and which command shows other scales."""
    claims = claims_of_papers(map(vars, audit.claims), audit.scale)
    sentences = [f"Claims of papers: {counted_in_words(claims)}."] if claims else []
    for paper, declared in audit.papers.items():
        of_paper = [line for line in map(vars, audit.lines) if line["headline"] and line["paper"] == paper]
        if of_paper:
            number = counted([len(of_paper)], "headline claim")
            sentences.append(f"{declared.name}: {number}: {tallied(counts(of_paper))}.")
    for name, tally in totals(audit).items():
        kind, noun, which = KINDS[name]
        if tally and kind != CLAIM:
            sentences.append(f"{counted([sum(tally.values())], noun)} {which}: {tallied(tally)}.")
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

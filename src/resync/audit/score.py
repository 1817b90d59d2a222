"""The score: how many claims and published numbers are decided at a scale, and why the others are not.

What follows from the configuration alone is undecided: no run has shown it. Claims of our own are no part of a paper.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from resync.audit.rows import Audit, ClaimRow, ValueRow
from resync.audit.verdicts import CONTRADICTED, FAILURES, OUTSIDE, SMALLER
from resync.metrics.registry import EXACT
from resync.paper.claim import Claim
from resync.paper.published import PublishedValue
from resync.run.run import SCALES

DECIDED = {
    "reproduced": "published numbers that were measured and agree",
    "not reproduced": "published numbers that are contradicted, also by diverged runs",
    "holds": "claims for which a test rejects a smaller effect",
    SMALLER: "claims whose size is rejected, but not their direction",
    CONTRADICTED: "claims that are contradicted",
}
UNDECIDED = {
    OUTSIDE: "tested on trainings of which the claim could not be true",
    "computed only": "follows from the configuration, whatever is run",
    "value unknown": "the published value is still to be looked up",
    "source unverified": "the published value itself is uncertain, or that the paper claims it",
    "our own reference": "measured by this project with the original's program or weights, and published by nobody",
    "not comparable": "a time of other hardware, or not decidable as declared",
    "GPU hours needed": "the runs that decide it need GPUs",
    "at another scale": "decided at another scale, without GPUs",
    "not run": "its runs have no results of the declared configuration",
    "seeds missing": "some of the declared seeds have no results",
    "imported logs": "logs of others agree, which says nothing of a run here",
    "not decided": "its seeds, or another machine than the published one, do not decide",
    "better": "outside the tolerance on the good side",
}
"""Why something is undecided; the first that applies."""
OUTCOMES = DECIDED | UNDECIDED
"""Each claim and published number of a paper has one outcome."""

STATES = {
    "reproduced": "supported", "holds": "supported", "better": "supported", "computed only": "supported",
    "not reproduced": CONTRADICTED, CONTRADICTED: CONTRADICTED, SMALLER: SMALLER, OUTSIDE: OUTSIDE,
    "GPU hours needed": "needs GPUs", "source unverified": "source not read", "value unknown": "source not read",
}  # fmt: skip
"""The state of a headline claim, by its outcome; any other is `undecided`."""

Series = Mapping[tuple[str, str, str], bool]
"""Whether the runs of a (scale, experiment, series) need GPUs."""


def score(audit: Audit) -> dict[str, Any]:
    """How many `numbers` and `claims` have each outcome, of all papers, and of each in `papers`."""
    papers = {paper: _counts(line for line in audit.lines if line.paper == paper) for paper in audit.papers}
    return {**_counts(audit.lines), "papers": papers}


def outcome(line: ValueRow | ClaimRow, entry: Claim | PublishedValue, scale: str, on_gpus: Series) -> str:
    """The outcome of a claim or number, by its verdict; empty for a claim of our own."""
    if isinstance(entry, Claim) and entry.is_ours:
        return ""
    counts = entry.status != "measured" and (
        entry.status != "unverified" or line.verdict not in ("holds", SMALLER, CONTRADICTED)
    )
    if counts and line.verdict in FAILURES:
        return line.verdict if isinstance(entry, Claim) else "not reproduced"
    if counts and line.verdict in ("reproduced", "holds"):
        return line.verdict
    return _why(line, entry, scale, on_gpus)


def _counts(lines: Iterable[ValueRow | ClaimRow]) -> dict[str, dict[str, int]]:
    lines = list(lines)
    numbers = Counter(line.outcome for line in lines if isinstance(line, ValueRow))
    claims = Counter(line.outcome for line in lines if isinstance(line, ClaimRow))
    return {
        name: {word: found[word] for word in OUTCOMES if found[word] or word in decided}
        for name, found, decided in (
            ("numbers", numbers, ("reproduced", "not reproduced")),
            ("claims", claims, ("holds", CONTRADICTED)),
        )
    }


def _why(line: ValueRow | ClaimRow, entry: Claim | PublishedValue, scale: str, on_gpus: Series) -> str:
    """Why a claim or number is undecided: what no run can change comes first."""
    hopeless = _of_claim(entry) if isinstance(entry, Claim) else _of_value(entry)
    if hopeless:
        return hopeless
    scales = entry.scales if isinstance(entry, Claim) else (entry.scale,)
    there = scale if scale in scales else min(scales, key=SCALES.index)
    if there != scale or line.verdict in ("not run", "stale"):
        if any(on_gpus.get((there, *pair)) for pair in entry.compared):
            return "GPU hours needed"
        return "not run" if there == scale else "at another scale"
    sides = line.sides if isinstance(line, ClaimRow) else ()
    if line.verdict == "partial" or any(len(side.ours.values) < side.ours.declared for side in sides):
        return "seeds missing"
    of_verdicts = {"better": "better", "inconclusive": "not decided", "recomputed": "imported logs"}
    of_verdicts |= {OUTSIDE: OUTSIDE, "not exercised": OUTSIDE}
    return of_verdicts.get(line.verdict, "not comparable")


def _of_claim(claim: Claim) -> str:
    if claim.undecidable:
        return "not comparable"
    if claim.status == "unverified":
        return "source unverified"
    return "computed only" if claim.is_exact else ""


def _of_value(value: PublishedValue) -> str:
    if value.value is None:
        return "value unknown"
    if value.status == "unverified":
        return "source unverified"
    if value.status == "measured":
        return "our own reference"
    if value.is_bare_time:
        return "not comparable"
    return "computed only" if value.metric in EXACT else ""

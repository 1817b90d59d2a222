"""The score of a paper: which share of its claims and published numbers is shown at a scale, and why the rest is not.

They form a tree: the sections of a paper, their figures and tables, and the claims and numbers of these. Each has a
weight among its siblings, 1 unless `paper.yaml` gives another, and only what has claims or numbers below it counts.
Several papers have equal weights. What follows from the configuration alone is undecided: no run has shown it.
Claims of our own are no part of a paper.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from resync.audit.rows import Audit, ClaimRow, Place, ValueRow
from resync.audit.verdicts import FAILURES
from resync.config import Suite
from resync.config.claim import Claim
from resync.config.metrics import EXACT
from resync.config.paper import Paper
from resync.config.published import PublishedValue, quantities
from resync.config.run import SCALES
from resync.results.evidence import number

OUTCOMES = {
    "reproduced": "published numbers that were measured and agree",
    "holds": "claims for which a test rejects a smaller effect",
    "fails": "numbers and claims that are contradicted, and diverged runs",
    "undecided": "everything else",
}
"""Each claim and number has one outcome."""
WHY = {
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
TEXT, OTHER = "(text)", "(other)"
"""What belongs to no figure or table, and the section of what no section names."""

Entry = Claim | list[PublishedValue]
"""A claim, or the published values of a quantity."""


Leaf = tuple[tuple[str, str, str], Place]
"""Paper, section and figure or table of a claim or number, and its place."""


@dataclass(frozen=True)
class Score:
    """The shares of the outcomes, which sum to 1; those in `why`, of the reasons, sum to `undecided`.

    `weight` is the share of the whole of which it is a part. `parts` are the papers, the sections of a paper by their
    titles, or the figures and tables of a section.
    """

    weight: float
    reproduced: float
    holds: float
    fails: float
    undecided: float
    why: dict[str, float]
    parts: "dict[str, Score]" = field(default_factory=dict)


def placed(
    suite: Suite, paper: str, scale: str, rows: Iterable[ValueRow], claims: Iterable[ClaimRow]
) -> tuple[list[ValueRow], list[ClaimRow]]:
    """The rows of a paper's published numbers and its claims, with their places in its tree."""
    weights = _weights(suite.papers[paper])
    on_gpus: dict[tuple[str, str, str], bool] = {}
    for run in suite.expanded[paper]:
        on_gpus[run.scale, run.experiment, run.series] = run.resources.gpus_per_node > 0
    entries = {_id(entry): entry for entry in _entries(suite.papers[paper])}

    def place(line: ValueRow | ClaimRow) -> Place | None:
        if line.id not in entries:
            return None
        entry = entries[line.id]
        outcome = _outcome(line.verdict, entry)
        why = _why(line, entry, scale, on_gpus) if outcome == "undecided" else ""
        return Place(*weights[line.id], outcome, why)

    return [replace(row, place=place(row)) for row in rows], [replace(claim, place=place(claim)) for claim in claims]


def score(audit: Audit) -> Score | None:
    """The score of an audit, with those of its papers as its parts; None if nothing was published or claimed."""
    leaves = [((line.paper, line.place.section, line.place.item), line.place) for line in audit.lines if line.place]
    return _score(leaves, 0, _weight(leaves)) if leaves else None


def in_words(found: Score, scale: str) -> str:
    """The score as a sentence."""
    shares = ", ".join(f"{outcome} {percent(getattr(found, outcome))}" for outcome in OUTCOMES)
    why = f" ({reasons(found)})" if found.why else ""
    return f"Score at {scale} scale, by weight: {shares}{why}."


def reasons(found: Score) -> str:
    """The shares of the reasons for being undecided; empty if nothing is."""
    return ", ".join(f"{why} {percent(share)}" for why, share in found.why.items())


def percent(share: float) -> str:
    """A share in percent."""
    return f"{number(100 * share, 1)} %"


def _score(leaves: Sequence[Leaf], depth: int, whole: float) -> Score:
    """The score of leaves with `depth` names in common, which are a part of something of weight `whole`."""
    own = _weight(leaves)
    shares = {word: _weight(leaf for leaf in leaves if leaf[1].outcome == word) / own for word in OUTCOMES}
    why = {word: _weight(leaf for leaf in leaves if leaf[1].why == word) / own for word in WHY}
    groups: dict[str, list[Leaf]] = {}
    for leaf in leaves:
        groups.setdefault("".join(leaf[0][depth : depth + 1]), []).append(leaf)
    parts = {name: _score(group, depth + 1, own) for name, group in groups.items() if name}
    return Score(own / whole, **shares, why={word: share for word, share in why.items() if share}, parts=parts)


def _weight(leaves: Iterable[Leaf]) -> float:
    return math.fsum(place.weight for _, place in leaves)


def _entries(paper: Paper) -> list[Entry]:
    """What has a weight: the published quantities, and the claims but for our own."""
    return [*quantities(paper.published), *(claim for claim in paper.claims if not claim.is_ours)]


def _id(entry: Entry) -> str:
    return entry.id if isinstance(entry, Claim) else entry[0].id


def _weights(paper: Paper) -> dict[str, tuple[str, str, float]]:
    """Section, figure or table and share of the paper of each claim and published number."""
    declared = paper.score
    section_of = {item: section.title for section in declared.sections for item in section.items}
    of_section = {section.title: section.weight for section in declared.sections}
    shown = {item: paper.shown(item) for item in paper.items}
    tree: dict[str, dict[str, dict[str, float]]] = {title: {} for title in of_section}
    for entry in _entries(paper):
        one = entry if isinstance(entry, Claim) else entry[0]
        item = one.item or next((name for name, pairs in shown.items() if pairs.issuperset(one.compared)), None)
        names = [one.id] if isinstance(entry, Claim) else [value.id for value in entry]
        given = next((declared.entries[name] for name in names if name in declared.entries), 1.0)
        section = tree.setdefault(section_of.get(item or "", OTHER), {})
        section.setdefault(item or TEXT, {})[one.id] = given
    found: dict[str, tuple[str, str, float]] = {}
    sections = {title: of_section.get(title, 1.0) for title, items in tree.items() if items}
    for title, section_weight in sections.items():
        items = {item: declared.items.get(item, 1.0) for item in tree[title]}
        for item, item_weight in items.items():
            entries = tree[title][item]
            share = section_weight / sum(sections.values()) * item_weight / sum(items.values()) / sum(entries.values())
            found |= {name: (title, item, share * weight) for name, weight in entries.items()}
    return found


def _outcome(verdict: str, entry: Entry) -> str:
    status = entry.status if isinstance(entry, Claim) else entry[0].status
    if status == "measured" or (status == "unverified" and verdict in ("holds", "fails")):
        return "undecided"
    if verdict in FAILURES:
        return "fails"
    return verdict if verdict in ("reproduced", "holds") else "undecided"


def _why(line: ValueRow | ClaimRow, entry: Entry, scale: str, on_gpus: Mapping[tuple[str, str, str], bool]) -> str:
    """Why a claim or number is undecided: what no run can change comes first.

    `on_gpus` says whether the runs of a (scale, experiment, series) need GPUs.
    """
    one = entry if isinstance(entry, Claim) else entry[0]
    hopeless = _of_claim(one) if isinstance(one, Claim) else _of_value(one)
    if hopeless:
        return hopeless
    scales = one.scales if isinstance(one, Claim) else (one.scale,)
    there = scale if scale in scales else min(scales, key=SCALES.index)
    if there != scale or line.verdict in ("not run", "stale"):
        if any(on_gpus.get((there, *pair)) for pair in one.compared):
            return "GPU hours needed"
        return "not run" if there == scale else "at another scale"
    if line.verdict == "partial" or (isinstance(line, ClaimRow) and _lacks_seeds(line)):
        return "seeds missing"
    of_verdicts = {"better": "better", "inconclusive": "not decided", "recomputed": "imported logs"}
    return of_verdicts.get(line.verdict, "not comparable")


def _of_claim(claim: Claim) -> str:
    """Why no run decides a claim; empty if runs do."""
    if claim.undecidable:
        return "not comparable"
    if claim.status == "unverified":
        return "source unverified"
    return "computed only" if claim.test == "exact" else ""


def _of_value(value: PublishedValue) -> str:
    """Why no run decides whether a published number is reproduced; empty if runs do."""
    if value.value is None:
        return "value unknown"
    if value.status == "unverified":
        return "source unverified"
    if value.status == "measured":
        return "our own reference"
    if value.is_bare_time:
        return "not comparable"
    return "computed only" if value.metric in EXACT else ""


def _lacks_seeds(claim: ClaimRow) -> bool:
    return any(len(side.ours.values) < side.ours.declared for side in claim.sides)

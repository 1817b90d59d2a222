"""The totals of an audit and the sentences made from them: the same on every page, in JSON and on the terminal.

Only what was measured counts as compared with a paper. What follows from the configuration is counted apart, and so is
the check that runs did their planned rounds, which says nothing about a paper.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from resync.audit import score
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
from resync.config.in_words import listed
from resync.config.run import SCALES

COMPARED = ("reproduced", "better", "inconclusive", "not reproduced", "diverged")
"""The verdicts on a number that runs measured and that was compared with a known published value."""
_VERBS = {
    "holds": ("holds", "hold"),
    "fails": ("fails", "fail"),
    "inconclusive": ("is inconclusive", "are inconclusive"),
    "computed": ("follows from the configuration", "follow from the configuration"),
    "recomputed": ("is borne out by imported logs only", "are borne out by imported logs only"),
}
"""What is said of one claim, and of several, by the verdicts that are results."""


@dataclass(frozen=True)
class Totals:
    """The number of rows per verdict, in the order of `VERDICTS`.

    measured, computed: of the published numbers that runs measure and of those that follow from the configuration,
        without those whose published value is not known, which are `unknown`.
    own_references: of the numbers that this project measured with an original's program or weights.
    claims: of the papers' claims. own_claims: of those of this project.
    logs: of the means of logs that others published. comparisons: of statements about such logs.
    rounds: of the series, whether they did the planned number of rounds.
    """

    measured: dict[str, int]
    own_references: dict[str, int]
    computed: dict[str, int]
    claims: dict[str, int]
    own_claims: dict[str, int]
    logs: dict[str, int]
    comparisons: dict[str, int]
    rounds: dict[str, int]
    unknown: int


def totals(audit: Audit) -> Totals:
    """The totals of an audit."""
    known = [line for line in audit.lines if line.verdict != "unknown"]

    def of(kind: str) -> dict[str, int]:
        return counts(line for line in known if line.kind == kind)

    return Totals(
        measured=of(MEASURED),
        own_references=of(OWN_REFERENCE),
        computed=of(COMPUTED),
        claims=of(CLAIM),
        own_claims=of(OWN_CLAIM),
        logs=of(LOGS),
        comparisons=of(LOG_CLAIM),
        rounds=of(ROUNDS),
        unknown=len(audit.lines) - len(known),
    )


def counts(rows: Iterable[ValueRow | ClaimRow]) -> dict[str, int]:
    """Number of rows per verdict, in the order of `VERDICTS`."""
    found = Counter(row.verdict for row in rows)
    return {word: found[word] for word in VERDICTS if found[word]}


def headline(audit: Audit) -> tuple[str, ...]:
    """The score, what was compared, what was computed, what this scale cannot show and which command can."""
    found, scored = totals(audit), score.score(audit)
    sentences = [
        score.in_words(scored, audit.scale) if scored else "",
        _measured(audit, found.measured),
        _of_others(found.own_references, "reference", "references", "of our own, which nobody published"),
        _computed(found),
        _claims(found.claims, "claim", "claims"),
        _claims(found.own_claims, "claim of our own", "claims of our own"),
        _elsewhere(audit),
        _of_others(found.logs, "mean", "means", "of logs that others published"),
        _of_others(found.comparisons, "comparison", "comparisons", "of such logs"),
        f"{_counted(found.unknown, 'published value is', 'published values are')} still to be looked up."
        if found.unknown
        else "",
        _rounds(found.rounds),
        _damaged(len(audit.damaged_runs)),
    ]
    return tuple(filter(None, sentences))


def sentence(audit: Audit) -> str:
    """The headline as one text."""
    return " ".join(headline(audit))


def _measured(audit: Audit, found: dict[str, int]) -> str:
    known = sum(found.values())
    if not known:
        return "No published number is measured in training."
    compared = {word: found[word] for word in COMPARED if word in found}
    logs = found.get("recomputed", 0)
    also = f" {_counted(logs, 'agrees', 'agree')} in imported logs only." if logs else ""
    of = f"of {_counted(known, 'known published number', 'known published numbers')} that training measures"
    if compared:
        return f"Measured and compared: {sum(compared.values())} {of} ({_listed(compared)}).{also}"
    scales = sorted({row.reference.scale for row in audit.rows if row.kind == MEASURED})
    where = f": they are of {' and '.join(scales)} scale" if audit.scale not in scales else ""
    return f"Measured and compared at {audit.scale} scale: none {of}{where}.{also}"


def _computed(found: Totals) -> str:
    known = sum(found.computed.values())
    if not known:
        return ""
    numbers = _counted(known, "number", "numbers")
    return f"Computed from the configuration, without a run: {numbers} ({_listed(found.computed)})."


def _claims(found: dict[str, int], one: str, several: str) -> str:
    claims = sum(found.values())
    if not claims:
        return ""
    decided = {word: found[word] for word in _VERBS if word in found}
    parts = [f"{count} {_VERBS[word][count != 1]}" for word, count in decided.items()]
    others = claims - sum(decided.values())
    parts += [f"{others} {'has' if others == 1 else 'have'} no result here"] if others else []
    return f"Of {_counted(claims, one, several)}, {listed(parts)}."


def _elsewhere(audit: Audit) -> str:
    """The papers' claims that mean nothing at this scale, by the smallest scale at which they do, and its command."""
    elsewhere = [claim for claim in audit.claims if claim.kind == CLAIM and audit.scale not in claim.scales]
    others = [next(scale for scale in SCALES if scale in claim.scales) for claim in elsewhere]
    found = [(scale, others.count(scale)) for scale in SCALES if scale in others]
    return " ".join(
        f"{_counted(count, 'claim needs', 'claims need')} {scale} scale: `make reproduce SCALE={scale}`."
        for scale, count in found
    )


def _of_others(found: dict[str, int], one: str, several: str, which: str) -> str:
    """The verdicts on what is neither a paper's nor in its score."""
    return f"Of {_counted(sum(found.values()), one, several)} {which}, {_listed(found)}." if found else ""


def _rounds(found: dict[str, int]) -> str:
    kept = found.get("as planned", 0)
    return f"{kept} of {_counted(sum(found.values()), 'series', 'series')} did the planned number of rounds."


def _damaged(count: int) -> str:
    return f"{_counted(count, 'run is', 'runs are')} damaged." if count else ""


def _listed(found: dict[str, int]) -> str:
    return ", ".join(f"{count} {word}" for word, count in found.items())


def _counted(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"

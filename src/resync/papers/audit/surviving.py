"""Which verdicts on claims survive a correction for the number of tests of an audit."""

from collections.abc import Iterable
from dataclasses import replace

from resync.papers.audit.rows import LOG_CLAIM, ClaimRow
from resync.papers.audit.verdicts import AGREES, FAILURES, OPEN

RATE = 0.05
"""The share of the verdicts that may be wrong (the false discovery rate)."""
_DECIDED = (AGREES, *FAILURES)


def surviving(claims: Iterable[ClaimRow]) -> tuple[ClaimRow, ...]:
    """The claims, of which those that tests over seeds decide say whether their verdict survives.

    By Benjamini and Hochberg (1995), over all claims tested inside their regimes; each is tested in two directions.
    """
    claims = list(claims)
    tested = {place: _p_value(claim) for place, claim in enumerate(claims)
              if claim.kind != LOG_CLAIM and claim.verdict in (*_DECIDED, OPEN)
              and claim.effects and claim.effects[0].p_less is not None}  # fmt: skip
    ordered = sorted(tested, key=tested.__getitem__)
    last = max((k for k, place in enumerate(ordered, 1) if tested[place] <= RATE * k / len(ordered)), default=0)
    kept = set(ordered[:last])
    return tuple(
        replace(claim, survives=place in kept if place in tested and claim.verdict in _DECIDED else None)
        for place, claim in enumerate(claims)
    )


def _p_value(claim: ClaimRow) -> float:
    """Of the verdict that a claim has or is nearest to, times two for the two directions."""
    holds = max(effect.p_less or 0.0 for effect in claim.effects)
    rejected = len(claim.effects) * min(1.0 if effect.p_more is None else effect.p_more for effect in claim.effects)
    return min(1.0, 2 * min(holds, rejected))

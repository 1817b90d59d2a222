"""A claim of an audit in a line: what it says, both sides, the effect with its interval, and a word for the verdict."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from resync.audit.rows import CLAIM
from resync.audit.verdicts import FAILURES
from resync.results.seed_values import decimals_for, difference_with_unit, effect_texts, number, signed

WORDS = {
    "computed": "arithmetic",
    "inconclusive": "open",
    "not comparable": "not tried",
    "not run": "not tried",
    "stale": "not tried",
    "unverified source": "not tried",
    "outside its regime": "outside",
    "not exercised": "not tried",
    "smaller than claimed": "smaller",
}
"""What readers keep of a verdict; of the others, whose runs say nothing yet, the verdict itself."""


def word_of(claim: Mapping[str, Any]) -> str:
    """`holds`, `smaller`, `contradicted`, `open`, `outside` (its regime), `not tried`, `arithmetic`, or the verdict."""
    return WORDS.get(claim["verdict"], str(claim["verdict"]))


def is_tried(claim: Mapping[str, Any]) -> bool:
    """Whether runs, or the configuration alone, say something of the claim."""
    return word_of(claim) != "not tried"


def is_decided(claim: Mapping[str, Any]) -> bool:
    """Whether seeds have been compared, also where they leave the claim open."""
    return is_tried(claim) and word_of(claim) not in ("arithmetic", "outside")


def claims_of_papers(lines: Iterable[Mapping[str, Any]], scale: str) -> list[Mapping[str, Any]]:
    """Of the lines of a scale's audit, the claims of papers that this scale is declared to test."""
    return [line for line in lines if line["kind"] == CLAIM and scale in line["scales"]]


def counted(lines: Iterable[Mapping[str, Any]]) -> tuple[int, int, int, int]:
    """How many claims or numbers agree with their papers, do not, are left open by their seeds, and are not tested."""
    verdicts = [line["verdict"] for line in lines]
    agree, still = verdicts.count("holds") + verdicts.count("reproduced"), verdicts.count("inconclusive")
    differ = sum(verdict in FAILURES for verdict in verdicts)
    return agree, differ, still, len(verdicts) - agree - differ - still


def counted_in_words(claims: Sequence[Mapping[str, Any]]) -> str:
    """`of 143 claims 52 hold, 21 do not, 36 are open`, and the rest as `cannot be tested at this scale`."""
    holds, fails, still, rest = counted(claims)
    more = f", {rest} cannot be tested at this scale" if rest else ""
    return f"of {len(claims)} claims {holds} hold, {fails} do not, {still} are open{more}"


def in_words(claim: Mapping[str, Any]) -> str:
    """`QSR sends less than constant H = 4: QSR 11, H = 4 25; -14 points (-15 to -13), n = 3`."""
    means = [(side["label"], side["ours"]["mean"], side["ours"]["std"]) for side in claim["sides"]]
    known = [(label, mean, std) for label, mean, std in means if mean is not None]
    if not known:
        return str(claim["statement"])
    sides = ", ".join(f"{label} {number(mean, decimals_for(std or 0.0))}" for label, mean, std in known)
    counts = {count for effect in claim["effects"] for count in effect["n"] or ()}
    parts = [sides, *(effect_in_words(effect, claim["unit"]) for effect in claim["effects"])]
    seeds = f", n = {'/'.join(map(str, sorted(counts)))}" if counts else ""
    least = f"; claimed at least {signed(claim['at_least'])}" if claim["at_least"] and claim["effects"] else ""
    return f"{claim['statement'].rstrip('.')}: {'; '.join(parts)}{least}{seeds}"


def effect_in_words(effect: Mapping[str, Any], unit: str) -> str:
    """`+0.31 points (+0.20 to +0.42)`."""
    difference, *bounds = effect_texts(effect["difference"], effect["low"], effect["high"])
    return difference_with_unit(difference, unit) + (f" ({' to '.join(bounds)})" if bounds else "")

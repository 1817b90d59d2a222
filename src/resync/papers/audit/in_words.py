"""A claim of an audit in a line: what it says, both sides, and the effect with its interval."""

from collections.abc import Mapping
from typing import Any

from resync.papers.audit.verdicts import UNTESTED
from resync.runs.results.seed_values import decimals_for, difference_with_unit, effect_texts, number, signed


def with_verdict(claim: Mapping[str, Any]) -> str:
    """`agrees, exploratory: QSR sends less than ...`, `untested, outside its regime: ...`."""
    untested = claim["verdict"] == UNTESTED
    more = claim["because"] if untested else "exploratory" if claim["exploratory"] else ""
    return f"{', '.join(filter(None, [claim['verdict'], more]))}: {in_words(claim)}"


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

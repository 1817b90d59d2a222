"""A claim of an audit in words: what it says, what came out, how sure that is, and last what was trained."""

import re
from collections.abc import Mapping
from typing import Any

from resync.papers.audit.verdicts import ARITHMETIC, UNTESTED
from resync.runs.results.seed_values import decimals_for, difference_with_unit, effect_texts, number, signed

_TRAINED = re.compile(r"Here \((.*?)\): ")
ALL_THE_SAME = "tested all the same: "
"""What stands in a reason before the verdict that says nothing of a paper."""


def said(claim: Mapping[str, Any]) -> tuple[str, str]:
    """What a claim states, and what was trained for it, which stands before it in an audit; empty where nothing was."""
    statement = str(claim["statement"])
    match = _TRAINED.match(statement)
    return (statement[match.end() :], match[1]) if match else (statement, "")


def with_verdict(claim: Mapping[str, Any]) -> str:
    """The statement, and below it what came out, then what was trained for that.

    `not tested here (untuned rates); measured all the same: QSR 42.74, H = 4 43.67; -0.93 points, n = 6`.
    """
    statement, trained = said(claim)
    return "\n    ".join(filter(None, [statement, _outcome(claim), trained and f"({trained})"]))


def _outcome(claim: Mapping[str, Any]) -> str:
    words = in_words(claim)
    if claim["verdict"] != UNTESTED:
        return f"{claim['verdict']}{', exploratory' if claim['exploratory'] else ''}{': ' if words else ''}{words}"
    if claim["because"] == ARITHMETIC:
        return f"follows from the settings, without a run: {words}"
    why = claim["reason"].partition(f"; {ALL_THE_SAME}")[0]
    return f"not tested here ({why}){'; measured all the same: ' if words else ''}{words}"


def in_words(claim: Mapping[str, Any]) -> str:
    """What was measured: `QSR 11, H = 4 25; -14 points (-15 to -13), n = 3`; empty where nothing was."""
    means = [(side["label"], side["ours"]["mean"], side["ours"]["std"]) for side in claim["sides"]]
    known = [(label, mean, std) for label, mean, std in means if mean is not None]
    if not known:
        return ""
    sides = ", ".join(f"{label} {number(mean, decimals_for(std or 0.0))}" for label, mean, std in known)
    counts = {count for effect in claim["effects"] for count in effect["n"] or ()}
    parts = [sides, *(effect_in_words(effect, claim["unit"]) for effect in claim["effects"])]
    seeds = f", n = {'/'.join(map(str, sorted(counts)))}" if counts else ""
    least = f"; claimed at least {signed(claim['at_least'])}" if claim["at_least"] and claim["effects"] else ""
    return f"{'; '.join(parts)}{least}{seeds}"


def effect_in_words(effect: Mapping[str, Any], unit: str) -> str:
    """`+0.31 points (+0.20 to +0.42)`."""
    difference, *bounds = effect_texts(effect["difference"], effect["low"], effect["high"])
    return difference_with_unit(difference, unit) + (f" ({' to '.join(bounds)})" if bounds else "")

"""The lines of an audit as its page shows them."""

from collections.abc import Callable, Iterable
from typing import Any

from resync.papers.audit.rows import CLAIM, CLAIMS, COMPUTED, LOG_CLAIM, LOGS, MEASURED, OWN_CLAIM, OWN_REFERENCE
from resync.papers.audit.verdicts import AGREES, DISAGREES, OPEN, SMALLER, UNTESTED
from resync.papers.report.content import Line
from resync.runs.metrics.registry import METRICS
from resync.runs.results.seed_values import difference_text, effect_texts

_STRIP_WIDTH, _STRIP_MARGIN = 150, 6
_RANKS = (DISAGREES, SMALLER, AGREES, OPEN, UNTESTED)
_TITLES = {
    CLAIM: ("Claims", "What a paper says, tested over seeds."),
    OWN_CLAIM: ("Claims of our own", "What no paper says, tested alike; counted apart."),
    MEASURED: ("Measured numbers", "What a paper printed, beside the mean of our seeds."),
    OWN_REFERENCE: (
        "References of our own",
        "What this project measured with an original's program or weights; nobody published it.",
    ),
    COMPUTED: ("Computed numbers", "They follow from the configuration, without a run, and count as no reproduction."),
    LOGS: ("Published logs", "Means that others published, computed again from their logs."),
    LOG_CLAIM: ("Comparisons of published logs", "What others say of their runs, tested over these; no run of ours."),
}
_OTHER_SIDES = {OWN_REFERENCE: "reference"} | dict.fromkeys(CLAIMS, "claimed")


def sections(lines: Iterable[Line]) -> list[dict[str, Any]]:
    """The lines by their kind, claims first, each with the texts that its columns need."""
    shown = sorted((line | _texts(line) for line in lines), key=_rank)
    of_kind = {kind: [line for line in shown if line["kind"] == kind] for kind in _TITLES}
    return [
        {"kind": kind, "title": title, "meaning": meaning, "heading": _other_side(kind), "lines": of_kind[kind]}
        for kind, (title, meaning) in _TITLES.items()
        if of_kind[kind]
    ]


def _rank(line: Line) -> tuple[int, bool]:
    """Lines that say something about a paper come first, failures before all others, and of these what was fixed
    before its runs; otherwise in declared order."""
    return _RANKS.index(line["verdict"]), bool(line.get("exploratory"))


def _texts(line: Line) -> dict[str, Any]:
    metric = METRICS[line["metric"]]
    unit = "" if line["unit"] in ("1", metric.title.lower()) else f", {line['unit']}"
    texts: dict[str, Any] = {"quantity": f"{metric.title}{unit}"}
    if line["kind"] not in CLAIMS:
        return texts | {"difference_text": difference_text(line["difference"]), "strip": _strip(line)}
    # The effect that decides between neighbours.
    smallest = min(line["effects"], key=lambda effect: effect["difference"], default=None)
    if smallest is None:
        return texts | {"effect": None, "effect_text": difference_text(None), "strip": None}
    text = effect_texts(smallest["difference"], smallest["low"], smallest["high"])[0]
    return texts | {"effect": smallest["difference"], "effect_text": text, "strip": effect_strip(line)}


def effect_strip(line: Line) -> dict[str, Any] | None:
    """Positions in a small plot of a claim's deciding effect: its interval, the claimed threshold, and zero."""
    effect = min(line["effects"], key=lambda entry: entry["difference"], default=None)
    if effect is None or effect["low"] is None or effect["high"] is None:
        return None
    low, high, least = effect["low"], effect["high"], line["at_least"]
    place = _places(min(low, least, 0.0), max(high, least, 0.0))
    if place is None:
        return None
    return {
        "width": _STRIP_WIDTH,
        "box": (place(low), round(place(high) - place(low), 1)),
        "bar": place(least),
        "zero": place(0.0),
        "dots": [place(effect["difference"])],
        "text": f"effect {effect['difference']:.3g}, interval {low:.3g} to {high:.3g}, claimed at least {least:g}",
    }


def _other_side(kind: str) -> str:
    return _OTHER_SIDES.get(kind, "published")


def _strip(line: Line) -> dict[str, Any] | None:
    """Positions in a small strip plot: one dot per seed, a bar at the published value, a box for its tolerance."""
    published, values = line["reference"]["value"], line["ours"]["values"]
    if line["difference"] is None or published is None or not values or None in values:
        return None
    reach = line["tolerance"] or line["reference"]["std"] or 0.0
    low, high = min(*values, published - reach), max(*values, published + reach)
    x = _places(low, high)
    if x is None:
        return None
    return {
        "width": _STRIP_WIDTH,
        "box": (x(published - reach), round(x(published + reach) - x(published - reach), 1)),
        "bar": x(published),
        "dots": [x(value) for value in values],
        "text": f"seeds {', '.join(f'{value:g}' for value in values)}; {_other_side(line['kind'])} {published:g}",
    }


def _places(low: float, high: float) -> Callable[[float], float] | None:
    """From values to places in a strip plot that shows the range; None for an empty one."""
    if not low < high:
        return None
    scale = (_STRIP_WIDTH - 2 * _STRIP_MARGIN) / (high - low)
    return lambda value: round(_STRIP_MARGIN + (value - low) * scale, 1)

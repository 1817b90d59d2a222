"""Tables of claims in pages, written from the audits of the committed results.

    <!-- claims mini/sgp: sgp_4_accuracy sgp_8_accuracy -->
    <!-- end of claims -->

The lines between the two comments are the table; `make reference` renews it, and a test compares it with the audit.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from resync.archive.quotes import Audits
from resync.results.evidence import decimals_for, effect_texts, notation, with_unit
from resync.settings.errors import not_among
from resync.text_tables import markdown_text, pipe_table

_BLOCK = re.compile(
    r"^(?P<head><!-- claims (?P<scale>\w+)/(?P<paper>\w+): (?P<ids>[\w\s]+?) -->)\n"
    r".*?"
    r"^(?P<end><!-- end of claims -->)$",
    re.MULTILINE | re.DOTALL,
)
_HEADINGS = ["claim", "mean ± standard deviation over seeds", "effect (95 % interval)", "n", "verdict"]


def renewed(text: str, audits: Audits) -> str:
    """A page with current tables. Raises ValueError for a scale without audit and for an unknown claim."""
    return _BLOCK.sub(lambda block: _with_table(block, audits), text)


def outdated(pages: Iterable[Path], audits: Audits) -> Iterator[str]:
    """A line for each page whose tables are not those of the audits."""
    for page in pages:
        text = page.read_text(encoding="utf-8")
        try:
            if renewed(text, audits) != text:
                yield f"{page}: tables of claims differ from the audit, `make reference` renews them"
        except ValueError as error:
            yield f"{page}: {error}"


def _with_table(block: re.Match[str], audits: Audits) -> str:
    scale, paper = block["scale"], block["paper"]
    if scale not in audits:
        raise ValueError(f"claims: no audit of scale {scale!r}, allowed: {', '.join(audits)}")
    known = {claim["id"]: claim for claim in audits[scale]["claims"] if claim["paper"] == paper}
    if unknown := [name for name in block["ids"].split() if name not in known]:
        raise ValueError(f"claims {scale}/{paper}: {not_among(unknown[0], known)}")
    table = pipe_table(_HEADINGS, [_row(known[name]) for name in block["ids"].split()], "lllrl")
    return "\n".join([block["head"], "", *table, "", block["end"]])


def _row(claim: Mapping[str, Any]) -> list[str]:
    """The cells of a claim; an order has an effect for each pair of neighbours."""
    counts = dict.fromkeys(count for effect in claim["effects"] for count in effect["n"] or ())
    spreads = [side["ours"]["std"] or 0.0 for side in claim["sides"]]
    return [
        markdown_text(claim["statement"]),
        "<br>".join(_side(side, decimals_for(spreads)) for side in claim["sides"]),
        "<br>".join(_effect(effect, claim["unit"]) for effect in claim["effects"]),
        ", ".join(map(str, counts)),
        f"**{claim['verdict']}**",
    ]


def _side(side: Mapping[str, Any], decimals: int) -> str:
    ours = side["ours"]
    value = ours["text"] if ours["mean"] is None else notation(ours["mean"], ours["std"], decimals=decimals)
    return f"{markdown_text(side['label'])}: {value}"


def _effect(effect: Mapping[str, Any], unit: str) -> str:
    difference, *bounds = effect_texts(effect["difference"], effect["low"], effect["high"])
    interval = f" ({' to '.join(bounds)})" if bounds else ""
    return f"{with_unit(difference, unit)}{interval}"

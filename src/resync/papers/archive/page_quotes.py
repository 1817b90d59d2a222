"""Numbers and verdicts that pages quote from audits, each with a comment behind it that says where it comes from.

    The effect is 0.31<!--=mini/sgp/peers_beat_rings/effects/0/difference--> points and
    **holds**<!--=mini/sgp/peers_beat_rings/verdict-->.

A quote names a scale, the paper and the id of a row or claim, and the keys below it in `audit.json`; or, instead of
paper and id, a key of `audit.json` itself or `environment`. A factor may follow, as in `<!--=... * 1e-6-->`. A number
agrees if it is the quoted one to its last printed decimal, and `<0.001` if it is smaller.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from resync.base.errors import UserError

_QUOTE = re.compile(r"<!--=\s*([^*>]+?)\s*(?:\*\s*(\S+?)\s*)?-->")
_SHOWN = re.compile(
    r"(?P<sign><|>|&lt;|&gt;)?\s*(?P<number>(?:(?<!\w)[-+\N{MINUS SIGN}])?\d[\d,]*(?P<rest>\.\d+)?(?:e[-+]?\d+)?)$"
)
_CODE = re.compile(r"^```.*?^```|`[^`\n]*<!--=[^`\n]*`", re.DOTALL | re.MULTILINE)
Audits = Mapping[str, Mapping[str, Any]]
"""The content of audit.json by scale, with that of the archive's environment.json as its entry `environment`."""


def wrong_quotes(pages: Iterable[Path], audits: Audits) -> Iterator[str]:
    """A line for each quote that does not agree with the audits."""
    for page in pages:
        text = _CODE.sub(lambda code: "\n" * code[0].count("\n"), page.read_text(encoding="utf-8"))
        for quote in _QUOTE.finditer(text):
            line = text.count("\n", 0, quote.start()) + 1
            before = _QUOTE.sub("", text[: quote.start()].rpartition("\n")[2]).rstrip("*_` %")
            try:
                problem = _problem(before, _value(quote[1], audits), float(quote[2] or 1))
            except ValueError as error:
                problem = str(error)
            if problem:
                yield f"{page}:{line}: {quote[1]}: {problem}"


def _problem(before: str, value: Any, factor: float) -> str:
    """Why the text before a quote does not end with the value; empty if it does."""
    if isinstance(value, str):
        return "" if before.casefold().endswith(value.casefold()) else f"found {before[-30:]!r}, allowed: {value!r}"
    if not isinstance(value, (int, float)):
        return f"is {value!r}, allowed: a number or a text"
    shown = _SHOWN.search(before)
    if shown is None:
        return f"found {before[-30:]!r}, allowed: a number in front of the quote"
    number = float(shown["number"].replace(",", "").replace("\N{MINUS SIGN}", "-"))
    actual = value * factor
    if shown["sign"] in ("<", "&lt;"):
        agrees = actual < number
    elif shown["sign"] in (">", "&gt;"):
        agrees = actual > number
    else:
        exponent = int(shown["number"].rpartition("e")[2]) if "e" in shown["number"] else 0
        unit = 10.0 ** (exponent - len(shown["rest"] or ".") + 1)
        agrees = abs(actual - number) <= unit / 2 * (1 + 1e-9)
    return "" if agrees else f"found {shown[0].strip()}, allowed: {actual:.10g} as rounded"


def _value(path: str, audits: Audits) -> Any:
    scale, *keys = path.split("/")
    if scale not in audits:
        raise UserError(f"no audit of scale {scale!r}, allowed: {', '.join(audits) or 'none is there'}")
    value: Any = audits[scale]
    if keys and keys[0] not in value:
        if len(keys) < 2:
            raise UserError(f"no {keys[0]!r} there, allowed: {_allowed(value)}; or a paper and an id")
        paper, name, *keys = keys
        rows = [row for row in (*value["rows"], *value["claims"]) if (row["paper"], row["id"]) == (paper, name)]
        if len(rows) != 1:
            raise UserError(f"{len(rows)} rows or claims {paper}/{name} in the audit of scale {scale}, allowed: one")
        value = rows[0]
    for key in keys:
        try:
            value = value[int(key)] if isinstance(value, list) else value[key]
        except (KeyError, IndexError, ValueError, TypeError):
            raise UserError(f"no {key!r} there, allowed: {_allowed(value)}") from None
    return value


def _allowed(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(value)
    return f"0 to {len(value) - 1}" if isinstance(value, list) and value else f"nothing below {value!r}"

"""Texts in the font of all figures: their widths, lines of a given width, and symbols as mathematics."""

import re
from collections.abc import Callable, Sequence
from functools import cache

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

FONTS = ("STIXGeneral", "DejaVu Serif")
"""Font families that come with matplotlib, so that every machine draws the same bytes."""

_NAMES = {"H_base": r"H_{\mathrm{base}}", "tau": r"\tau", "alpha": r"\alpha", "beta": r"\beta"}
# A single letter is a symbol where it has a value, or is the period.
_SYMBOL = re.compile(rf"\b(?:({'|'.join(_NAMES)})\b(?: ?= ?(\d[\d./]*))?|([HK]) ?= ?(\d[\d./]*)|(?<=Period )(H)\b)")


def with_symbols(text: str, plain: Callable[[str], str]) -> str:
    """The text with symbols such as `H_base=4` as mathematics between dollars, and what `plain` makes of the rest."""
    parts, end = [], 0
    for match in _SYMBOL.finditer(text):
        name = match[1] or match[3] or match[5]
        value = match[2] or match[4]
        parts += [plain(text[end : match.start()]), f"${_NAMES.get(name, name)}{f' = {value}' if value else ''}$"]
        end = match.end()
    return "".join([*parts, plain(text[end:])])


def drawn(text: str) -> str:
    """The text for matplotlib with `parse_math=has_symbols(text)`."""
    return with_symbols(text, lambda part: part.replace("$", r"\$")) if has_symbols(text) else text


def has_symbols(text: str) -> bool:
    """Whether there is a symbol to draw as mathematics."""
    return _SYMBOL.search(text) is not None


@cache
def width_of(text: str, size: float) -> float:
    """The width in points of a text in one line."""
    font = FontProperties(family=list(FONTS), size=size, math_fontfamily="stix")
    width, _, _ = text_to_path.get_text_width_height_descent(drawn(text), font, has_symbols(text))
    return float(width)


def wrapped(text: str, width: float, size: float) -> list[str]:
    """The text in lines of at most `width` points; a longer word has a line of its own."""
    lines: list[str] = []
    for word in text.split():
        if lines and width_of(longer := f"{lines[-1]} {word}", size) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def balanced(text: str, width: float, size: float) -> list[str]:
    """The text in as few lines as `wrapped` makes, about equally wide, so that no word is left alone."""
    lines = wrapped(text, width, size)
    words = text.split()
    if len(lines) in (1, len(words)):
        return lines
    space = 0.25 * size
    widths = [width_of(word, size) + space for word in words]  # add up to a line's, near enough and far quicker
    limit = sum(widths) / len(lines)
    while len(filled := _filled(words, widths, limit)) > len(lines):
        limit *= 1.01
    return filled


def _filled(words: Sequence[str], widths: Sequence[float], limit: float) -> list[str]:
    """Lines of these words, each as long as `limit` allows."""
    lines, room = [words[0]], limit - widths[0]
    for word, width in zip(words[1:], widths[1:], strict=True):
        room -= width
        if room >= 0:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
            room = limit - width
    return lines

"""Whether files that were drawn are those that were committed: the same bytes, or what rounding leaves the same.

Between two processors, the last digit of a number may differ and with it the shade of a pixel. Numbers in texts may so
differ by a relative 1e-6, below what any page or picture shows, and one pixel in ten thousand may have another shade.
What is left of large numbers that cancel may be all rounding: numbers in a column of a CSV file, or an entry of a JSON
file, may also differ by the rounding of the largest one there.
"""

import csv
import json
import math
import re
from collections.abc import Iterable, Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from resync.base.files import lines_of
from resync.workers.formulas.rounding import ROUNDING

_ORIGIN = re.compile(r"^\s*<dc:description>resync: [^<]*</dc:description>\n", re.MULTILINE)
"""What an SVG was drawn from, with the digest of a CSV in which last digits may differ."""
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_NAMES = re.compile(r'(?<=\bid=")[^"]+|(?<=url\(#)[^)]+|(?<=href="#)[^"]+')
_TOLERANCE = 1e-6
_COORDINATE = 2e-6
"""Coordinates are written with six decimals."""
_PIXELS = 1e-4


class _Text(NamedTuple):
    """A line, cell or value of a file; `of` has the numbers that its own may be left of."""

    where: str
    text: str
    of: object = None


def difference(committed: Path, drawn: Path) -> str:
    """How a file differs from the committed one; empty if it does not, or only by rounding."""
    if committed.read_bytes() == drawn.read_bytes():
        return ""
    if committed.suffix == ".png":
        return _of_pictures(committed, drawn)
    old, new = (list(_texts(file.suffix, file.read_text(encoding="utf-8"))) for file in (committed, drawn))
    floors = _floors(chain(old, new))
    absolute = _COORDINATE if committed.suffix == ".svg" else 0.0
    for one, other in zip_longest(old, new):
        if one is None or other is None or one.where != other.where:
            gone, added = (f"{side.where}: {side.text[:60]!r}" if side else "its end" for side in (one, other))
            return f"committed {gone}, drawn {added}"
        if not _same_but_rounding(one.text, other.text, floors.get(one.of, absolute)):
            pairs = enumerate(zip(one.text, other.text, strict=False))
            at = next((at for at, (a, b) in pairs if a != b), min(len(one.text), len(other.text)))
            shown = slice(max(0, at - 20), max(0, at - 20) + 60)
            return f"{one.where}: committed {one.text[shown]!r}, drawn {other.text[shown]!r}"
    return ""


def _texts(suffix: str, text: str) -> Iterator[_Text]:
    if suffix == ".csv":
        for number, row in enumerate(csv.reader(lines_of(text)), 1):
            yield from (_Text(f"line {number}, column {column}", cell, column) for column, cell in enumerate(row, 1))
    elif suffix == ".json":
        yield from _values(json.loads(text))
    else:
        for number, line in enumerate(lines_of(_numbered(text) if suffix == ".svg" else text), 1):
            yield _Text(f"line {number}", line)


def _values(tree: Any, where: str = "", entry: str = "") -> Iterator[_Text]:
    """What a JSON document has at the ends of its branches; an entry is an element of its outermost lists."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _values(value, f"{where}.{key}" if where else key, entry)
    elif isinstance(tree, list):
        for number, value in enumerate(tree):
            at = f"{where}[{number}]"
            yield from _values(value, at, entry or at)
    else:
        yield _Text(where, json.dumps(tree), entry)


def _floors(texts: Iterable[_Text]) -> dict[object, float]:
    """The rounding of the largest number of each column or entry."""
    floors: dict[object, float] = {}
    for text in texts:
        if text.of is not None and _NUMBER.fullmatch(text.text):
            floors[text.of] = max(floors.get(text.of, 0.0), ROUNDING * abs(float(text.text)))
    return floors


def _same_but_rounding(first: str, second: str, absolute: float) -> bool:
    if first == second:
        return True
    numbers = [[float(number) for number in _NUMBER.findall(text)] for text in (first, second)]
    return _NUMBER.split(first) == _NUMBER.split(second) and all(
        math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=absolute) for one, other in zip(*numbers, strict=True)
    )


def _numbered(svg: str) -> str:
    """An SVG without its origin, whose names, digests of what they name, are numbers in the order of appearance."""
    order: dict[str, str] = {}
    return _NAMES.sub(lambda name: order.setdefault(name[0], f"name{len(order)}"), _ORIGIN.sub("", svg))


def _of_pictures(committed: Path, drawn: Path) -> str:
    with Image.open(committed) as first, Image.open(drawn) as second:
        if first.size != second.size:
            return f"{first.size[0]} x {first.size[1]} pixels committed, {second.size[0]} x {second.size[1]} drawn"
        old, new = (np.asarray(picture.convert("RGBA"), dtype=np.int16) for picture in (first, second))
    share = float((old != new).any(axis=-1).mean())
    return f"{100 * share:.2f} % of the pixels differ" if share > _PIXELS else ""

"""Whether files that were drawn are those that were committed: the same bytes, or what rounding leaves the same.

Between two processors, the last digit of a number may differ and with it the shade of a pixel. Numbers in texts may so
differ by a relative 1e-6, below what any page or picture shows, and one pixel in ten thousand may have another shade.
"""

import math
import re
from pathlib import Path

import numpy as np
from PIL import Image

from resync.files import lines_of

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_NAMES = re.compile(r'(?<=\bid=")[^"]+|(?<=url\(#)[^)]+|(?<=href="#)[^"]+')
_TOLERANCE = 1e-6
_COORDINATE = 2e-6
"""Coordinates are written with six decimals."""
_PIXELS = 1e-4


def difference(committed: Path, drawn: Path) -> str:
    """How a file differs from the committed one; empty if it does not, or only by rounding."""
    if committed.read_bytes() == drawn.read_bytes():
        return ""
    if committed.suffix == ".png":
        return _of_pictures(committed, drawn)
    first, second = (file.read_text(encoding="utf-8") for file in (committed, drawn))
    if committed.suffix == ".svg":
        return _of_texts(_numbered(first), _numbered(second), _COORDINATE)
    return _of_texts(first, second)


def _of_texts(committed: str, drawn: str, absolute: float = 0.0) -> str:
    old, new = lines_of(committed), lines_of(drawn)
    for number, (first, second) in enumerate(zip(old, new, strict=False), 1):
        if first != second and not _same_but_rounding(first, second, absolute):
            pairs = enumerate(zip(first, second, strict=False))
            at = next((at for at, (one, other) in pairs if one != other), min(len(first), len(second)))
            shown = slice(max(0, at - 20), max(0, at - 20) + 60)
            return f"line {number}: committed {first[shown]!r}, drawn {second[shown]!r}"
    return "" if len(old) == len(new) else f"{len(old)} lines committed, {len(new)} drawn"


def _same_but_rounding(first: str, second: str, absolute: float) -> bool:
    numbers = [[float(each) for each in _NUMBER.findall(text)] for text in (first, second)]
    return _NUMBER.split(first) == _NUMBER.split(second) and all(
        math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=absolute) for one, other in zip(*numbers, strict=True)
    )


def _numbered(svg: str) -> str:
    """An SVG whose names, which are digests of what they name, are numbers in the order of appearance."""
    order: dict[str, str] = {}
    return _NAMES.sub(lambda name: order.setdefault(name[0], f"name{len(order)}"), svg)


def _of_pictures(committed: Path, drawn: Path) -> str:
    with Image.open(committed) as first, Image.open(drawn) as second:
        if first.size != second.size:
            return f"{first.size[0]} x {first.size[1]} pixels committed, {second.size[0]} x {second.size[1]} drawn"
        old, new = (np.asarray(picture.convert("RGBA"), dtype=np.int16) for picture in (first, second))
    share = float((old != new).any(axis=-1).mean())
    return f"{100 * share:.2f} % of the pixels differ" if share > _PIXELS else ""

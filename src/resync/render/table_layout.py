"""How large the text of a table can be, and how its headings are broken, so that it is no wider than a page allows."""

from collections.abc import Sequence
from dataclasses import dataclass

from resync.render.style import SMALL
from resync.render.table import Cell, Heading
from resync.render.text import width_of, wrapped

POINTS_PER_INCH = 72
MARGIN = 2.0
MARK = 0.72
"""Size of a raised mark, in that of the text."""
_SIZES = (8.5, 8.0, 7.5, SMALL)
_GAPS = (14.0, 9.0)


@dataclass(frozen=True)
class Column:
    """A column in points: its lines of heading, where it begins, how wide it is, and its numbers within.

    The numbers together are `inner` points wide, of which `before` are before the decimal point.
    """

    heading: tuple[str, ...]
    left: float
    width: float
    before: float
    inner: float

    @property
    def point(self) -> float:
        """The position of the decimal points."""
        return self.left + (self.width - self.inner) / 2 + self.before


@dataclass(frozen=True)
class Group:
    """Neighbouring columns, `first` to `last`, with a common heading above theirs."""

    heading: tuple[str, ...]
    first: int
    last: int


@dataclass(frozen=True)
class Layout:
    """A table set in text of `size` points."""

    size: float
    gap: float
    available: float
    columns: tuple[Column, ...]
    groups: tuple[Group, ...]

    @property
    def width(self) -> float:
        """The width of all columns, in points."""
        return self.columns[-1].left + self.columns[-1].width


def fitted(headings: Sequence[Heading], rows: Sequence[Sequence[Cell]], width: float) -> Layout:
    """The first layout that fits into `width` inches; the last one if none does.

    In this order: with headings in one line, then in several, then with smaller text, then with smaller gaps.
    """
    available = width * POINTS_PER_INCH - 2 * MARGIN
    tries = [(_SIZES[0], _GAPS[0], False)] + [(size, gap, True) for gap in _GAPS for size in _SIZES]
    for size, gap, broken in tries:
        layout = _layout(headings, rows, size, gap, available, broken=broken)
        if layout.width <= available:
            break
    return layout


def _layout(
    headings: Sequence[Heading], rows: Sequence[Sequence[Cell]], size: float, gap: float, available: float, broken: bool
) -> Layout:
    groups = _grouped(headings)
    befores, inners, widths = [], [], []
    for index, heading in enumerate(headings):
        before, inner, body = _measured([row[index] for row in rows], heading, size)
        befores.append(before)
        inners.append(inner)
        widths.append(max(body, _least(heading.own, size, broken)))
    for title, first, last in groups:
        count = last - first + 1
        lacking = _least(title, size, broken) - (sum(widths[first : last + 1]) + gap * (count - 1))
        for index in range(first, last + 1):
            widths[index] += max(0.0, lacking) / count
    lefts = [sum(widths[:index]) + gap * index for index in range(len(widths))]
    columns = tuple(
        Column(tuple(wrapped(heading.own, width + 0.01, size)), left, width, before, inner)
        for heading, left, width, before, inner in zip(headings, lefts, widths, befores, inners, strict=True)
    )
    spans = [lefts[last] + widths[last] - lefts[first] for _, first, last in groups]
    named = tuple(
        Group(tuple(wrapped(title, span + 0.01, size)), first, last)
        for (title, first, last), span in zip(groups, spans, strict=True)
    )
    return Layout(size, gap, available, columns, named)


def _grouped(headings: Sequence[Heading]) -> list[tuple[str, int, int]]:
    """(heading, first column, last column) of every group."""
    found: list[tuple[str, int, int]] = []
    for index, heading in enumerate(headings):
        if heading.group and found and found[-1][0] == heading.group and found[-1][2] == index - 1:
            found[-1] = heading.group, found[-1][1], index
        elif heading.group:
            found.append((heading.group, index, index))
    return found


def _measured(cells: Sequence[Cell], heading: Heading, size: float) -> tuple[float, float, float]:
    """(width before the decimal point, width of the numbers, width of all cells) of a column."""
    before = behind = words = 0.0
    for cell in cells:
        mark = width_of(cell.mark, MARK * size)
        if heading.numbers and cell.parts:
            before = max(before, width_of(cell.parts[0], size, bold=cell.best))
            behind = max(behind, width_of(cell.parts[1], size, bold=cell.best) + mark)
        else:
            words = max(words, width_of(cell.text, size, bold=cell.best) + mark)
    return before, before + behind, max(before + behind, words)


def _least(title: str, size: float, broken: bool) -> float:
    """The smallest width of a heading: that of its longest word where it may be broken."""
    return max((width_of(part, size) for part in (title.split() if broken else [title])), default=0.0)

"""The data behind a figure: a table with one row per plotted point, in the same columns for every kind."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Protocol

from resync.base.text_tables import csv_text
from resync.papers.paper.published import PublishedValue


@dataclass(frozen=True)
class Point:
    """One plotted point; what does not apply to it is None or empty.

    Attributes:
        panel: letter of the panel.
        series: label of the line or marker in the legend.
        shows: `mean` over seeds, one `seed`, `published`, `published, unverified`, `measured by this project`, or what
            the kind of figure says: `computed`, `simulated`.
        x_axis, y_axis: titles of the axes with their units.
        x, y: the coordinates; x is None for a level over the whole width.
        low, high: ends of the band or error bar.
        interval: what these ends are.
        n: number of seeds behind the point.
        seed: the seed, of a point with a single one.
    """

    panel: str
    series: str
    shows: str
    x_axis: str
    x: float | None
    y_axis: str
    y: float
    low: float | None = None
    high: float | None = None
    interval: str = ""
    n: int | None = None
    seed: int | None = None


@dataclass(frozen=True)
class Level:
    """A number of `published.yaml` with its status, in the unit in which it is drawn."""

    value: float
    status: str = "verified"

    @classmethod
    def of(cls, published: PublishedValue | None, scale: str) -> "Level | None":
        """The level of a published number; None without one of this scale, to which it belongs."""
        if published is None or published.value is None or published.scale != scale:
            return None
        return cls(published.value, published.status)

    @property
    def shows(self) -> str:
        return shown_as(self.status)

    @property
    def alpha(self) -> float | None:
        return 0.4 if self.status == "unverified" else None

    @property
    def dash(self) -> str:
        return "-." if self.status == "measured" else ":"


def shown_as(status: str) -> str:
    """What a number of `published.yaml` is called beside ours, by its status: nobody published a `measured` one."""
    return {"measured": "measured by this project", "unverified": "published, unverified"}.get(status, "published")


def levels_note(levels: Iterable[Level | None], drawn: str) -> str:
    """What levels are, which are `drawn` in this way: `dotted: published · pale dotted: published, unverified`."""
    shown = {level.shows: level for level in levels if level is not None}
    drawn_as = {"measured by this project": f"dash-{drawn}", "published, unverified": f"pale {drawn}"}
    return " · ".join(f"{drawn_as.get(shows, drawn)}: {shows}" for shows in sorted(shown))


class Numbers(Protocol):
    """What `prepare` of a kind of figure returns and `draw` draws."""

    def points(self) -> Iterable[Point]:
        """Every point that is drawn, panel by panel."""


def points_csv(numbers: Numbers) -> str:
    """The points of a figure as CSV with full precision."""
    return csv_text(map(asdict, numbers.points()), [field.name for field in fields(Point)])

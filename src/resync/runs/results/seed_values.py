"""The values of the seeds of one series, and their notation: `80.974 ± 0.052 (n=3)`."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from resync.workers.formulas.rounding import without_noise

_MOST_DECIMALS = 6


@dataclass(frozen=True)
class SeedValues:
    """The values of one metric, one per seed. A NaN or infinity among them makes mean and std NaN."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float]) -> "SeedValues":
        return cls(tuple(float(value) for value in values))

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> float:
        """Mean over the seeds, independent of their order; NaN without seeds."""
        return math.fsum(self.values) / self.n if self.finite else math.nan

    @property
    def std(self) -> float:
        """Sample standard deviation (n - 1), 0 if it is only rounding; NaN with fewer than two seeds."""
        if self.n < 2 or not self.finite:
            return math.nan
        std = math.sqrt(math.fsum((value - self.mean) ** 2 for value in self.values) / (self.n - 1))
        return without_noise(std, max(self.values, key=abs))

    @property
    def finite(self) -> bool:
        return self.n > 0 and all(math.isfinite(value) for value in self.values)

    def text(self, decimals: int | None = None) -> str:
        """`80.974 ± 0.052 (n=3)`, with two significant digits of the deviation unless decimals are given."""
        if not self.values:
            return ""
        if decimals is None:
            decimals = min(_MOST_DECIMALS, decimals_for(self.std)) if math.isfinite(self.std) else 2
        return notation(self.mean, self.std, self.n, decimals)


def notation(mean: float, std: float | None = None, n: int | None = None, decimals: int = 2) -> str:
    """`80.974 ± 0.052 (n=3)` without the unknown parts."""
    text = number(mean, decimals)
    if std is not None and math.isfinite(std):
        text += f" ± {number(std, decimals)}"
    return f"{text} (n={n})" if n is not None else text


def number(value: float, decimals: int = 2) -> str:
    """A number with a fixed number of decimals; NaN and infinities are written as `NaN`, `∞` and `-∞`."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    text = f"{value:.{decimals}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def signed(value: float, decimals: int = 2) -> str:
    """A difference, always with its sign."""
    text = number(value, decimals)
    return text if text.startswith("-") else f"+{text}"


def difference_text(value: float | None) -> str:
    """A difference with its sign and at least two significant digits, of six decimals; a dash for none and for NaN."""
    if value is None or math.isnan(value):
        return "\N{EN DASH}"
    return signed(value, max(2, min(_MOST_DECIMALS, decimals_for(value))))


def decimals_for(spread: float) -> int:
    """With how many decimals a spread has two significant digits, and what it belongs to is shown; 2 if it is 0."""
    return max(0, 1 - math.floor(math.log10(abs(spread)))) if spread else 2


def effect_texts(difference: float, low: float | None = None, high: float | None = None) -> tuple[str, ...]:
    """An effect, `+0.214`, and the bounds of its interval if it has one, rounded by the width of the interval."""
    if low is None or high is None:
        return (difference_text(difference),)
    decimals = decimals_for((high - low) / 2)
    return tuple(signed(value, decimals) for value in (difference, low, high))


def difference_with_unit(text: str, unit: str) -> str:
    """A difference with its unit, that of percentages in points; a pure number, of unit 1, has none."""
    return text if unit in ("", "1") else f"{text} {'points' if unit == '%' else unit}"


def as_published(value: float, std: float | None = None, n: int | None = None) -> str:
    """`80.98 ± 0.05 (n=3)` with as many decimals as the numbers themselves have."""
    return notation(value, std, n, max(decimals_of(value), decimals_of(std or 0.0)))


def decimals_of(value: float) -> int:
    """Number of decimals of a published value as printed: 2 for 80.98, at least 1 for any float."""
    exponent = Decimal(repr(float(value))).as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0

"""What a published value is compared with: the mean of one series, or the difference or ratio of two."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from resync.audit.verdicts import Target, Tolerance, Verdict, compare
from resync.config.metrics import METRICS, RATIO_TOLERANCE, RATIO_TOLERANCE_REASON
from resync.config.published import PublishedValue
from resync.results.evidence import Evidence, number


@dataclass(frozen=True)
class Comparison:
    """The target of a published value, and whether it is one of a ratio, on whose logarithm it then is.

    `published` is the number that our mean, difference or ratio is compared with.
    """

    target: Target
    published: float
    of_ratio: bool

    @classmethod
    def of(cls, value: PublishedValue, reference: float | None, least_seeds: int) -> "Comparison | None":
        """The comparison of a value, a time relative to `reference`; None if the value is not known."""
        if value.value is None:
            return None
        metric, of_ratio = METRICS[value.metric], value.is_ratio or value.relative_to is not None
        published = value.value / reference if reference else value.value
        target = Target(
            value=published,
            std=value.std,
            n=value.n,
            better=metric.sign,
            declared=value.tolerance,
            default=metric.tolerance,
            reason=value.tolerance_reason or metric.tolerance_reason,
            bound=value.bound,
            least_seeds=least_seeds,
        )
        if of_ratio:
            target = replace(
                target,
                value=math.log(published),
                declared=None if value.tolerance is None else math.log1p(value.tolerance),
                default=math.log1p(RATIO_TOLERANCE),
                reason=value.tolerance_reason or RATIO_TOLERANCE_REASON,
            )
        return cls(target, published, of_ratio)

    @property
    def tolerance(self) -> Tolerance | None:
        """The tolerance that applies; that of a ratio is relative. None for a bound, and where there is none."""
        found = None if self.target.bound else self.target.tolerance
        if found is None or not self.of_ratio:
            return found
        return Tolerance(math.expm1(found.value), f"relative, of a ratio, {found.basis}")

    def ours(self, evidence: Sequence[Evidence]) -> float:
        """Our mean, difference or ratio; NaN without finite results."""
        first, *others = (one.mean for one in evidence)
        if not others:
            return first
        [second] = others
        if not self.of_ratio:
            return first - second
        return first / second if second else math.nan

    def verdict(self, evidence: Sequence[Evidence]) -> Verdict:
        """The verdict on our values, of one or two series."""
        first, *others = evidence
        if not self.of_ratio:
            return compare(first, self.target, *others)
        found = compare(_logarithms(first), self.target, *map(_logarithms, others))
        ratios = f"ratio {number(self.ours(evidence), 3)}, published {number(self.published, 3)}"
        return Verdict(found.word, f"{ratios}; of their logarithms: {found.reason}")


def _logarithms(times: Evidence) -> Evidence:
    return Evidence.of(math.log(value) if value > 0 else math.nan for value in times.values)

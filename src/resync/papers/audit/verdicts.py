"""Verdicts: five words, each with one reason of one table and a sentence, as pure functions of numbers.

A difference is always ours minus published. Its 95 % confidence interval decides, never the mean alone:
* with a declared tolerance or the metric's default: an equivalence test. It agrees if Student's interval lies inside
  ± tolerance, and disagrees if it lies outside, unless on the good side;
* with a published standard deviation and number of seeds: Welch's interval of the difference of two means. It agrees if
  that contains 0 and is no wider than the metric's default tolerance on each side (noise is not agreement), and
  disagrees if it does not contain 0;
* with n: 1 and no declared tolerance, the published value is one draw, which is consistent with ours if it lies in the
  interval in which another training of ours would lie (prediction interval). It agrees if that interval excludes a
  named alternative, too: an interval that holds everything tells nothing from anything;
* such a draw on a problem that is the same here has the range of our trainings with other noise as its interval, and
  the training without noise as its alternative;
* a published bound: it agrees if the interval lies on the bound's right side, and disagrees on the other one;
* a published difference or ratio of two series: the same for the difference of our two means, for a ratio of their
  logarithms;
* a planned number has no spread: it is arithmetic if it lies within its tolerance, and disagrees if not.

One or two seeds say little or nothing about the spread over seeds. So the variance is moderated (Smyth 2004): it is the
mean, weighted by degrees of freedom, of that of our seeds and of one that is assumed beforehand, for a deviation of a
quarter of the tolerance with 4 degrees of freedom. One seed decides nothing, unless nothing was trained (an evaluation
of others' weights), where it has the interval of the assumed deviation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from scipy.special import stdtrit

from resync.papers.paper.claim import LEAST_SEEDS
from resync.papers.paper.published import PublishedValue
from resync.runs.metrics.registry import (
    LEAST_ERROR,
    METRICS,
    NOISY_TRAININGS,
    RATIO_TOLERANCE,
    RATIO_TOLERANCE_REASON,
)
from resync.runs.results.seed_values import SeedValues, decimals_for, decimals_of, number, signed
from resync.workers.formulas import rounding

AGREES, SMALLER, DISAGREES, OPEN, UNTESTED = "agrees", "smaller than published", "disagrees", "open", "untested"
VERDICTS = {
    AGREES: ("✓", "what was measured bears the claim or the number out"),
    SMALLER: ("▾", "an effect as large as the claimed one is excluded, but not one in its direction"),
    DISAGREES: ("✗", "the claim or the number is excluded by what was measured"),
    OPEN: ("≈", "tested, and neither borne out nor excluded"),
    UNTESTED: ("○", "nothing was run that could decide it"),
}
"""The answers to whether a claim or a number of a paper is true of our runs: each with its sign and its meaning."""
FAILURES = (SMALLER, DISAGREES)

BY_RUNS, BETTER, TOO_FEW = "runs decide", "better", "seeds do not decide"
NOT_RUN, OTHER_SCALE, OUTSIDE = "not run", "another scale", "outside its regime"
NOT_COMPARABLE, SOURCE = "not comparable", "source uncertain"
ARITHMETIC, LOGS_OF_OTHERS = "arithmetic", "logs of others"
REASONS = {
    BY_RUNS: "a test, an interval or an equal record; a training that diverged has the worst value",
    BETTER: "outside the tolerance on the good side, which needs an explanation",
    TOO_FEW: "the seeds that have results cannot decide, or are fewer than declared or than the least number",
    NOT_RUN: "its runs have no results of the declared configuration, or none is declared",
    OTHER_SCALE: "it is about another scale than that of these runs",
    OUTSIDE: "these runs are not of the kind that it is about, as the regime of their experiment measures it",
    NOT_COMPARABLE: "other hardware, images or metrics than published, or it cannot be decided as declared",
    SOURCE: "the published value is unknown or uncertain",
    ARITHMETIC: "it follows from the configuration, whatever is run",
    LOGS_OF_OTHERS: "computed from logs that others published, which says nothing of a run here",
}
"""Why a verdict is what it is: one of these for each."""

CONFIDENCE = 0.95
MOST_SEEDS = 1000
_EQUAL = 1e-12
"""Relative difference of two numbers that are the same but for rounding."""
ASSUMED_SHARE = 0.25
"""The standard deviation over seeds that is assumed beforehand, as a share of the tolerance."""
ASSUMED_DEGREES = 4
"""The weight of that assumption against our own seeds, in degrees of freedom."""


@dataclass(frozen=True)
class Verdict:
    """One word of VERDICTS, why by REASONS, and a sentence with the numbers."""

    word: str
    because: str
    reason: str

    def __post_init__(self) -> None:
        assert self.word in VERDICTS, self.word
        assert self.because in REASONS, self.because
        assert self.reason


@dataclass(frozen=True)
class Tolerance:
    """The largest difference that counts as agreement, in the metric's unit; `basis` says where it comes from."""

    value: float
    basis: str


@dataclass(frozen=True)
class Target:
    """A published value to compare with. `better` is 1 if larger is better, -1 if smaller is better, otherwise 0.

    `declared` is the tolerance declared for this value and `default` that of its metric, None if there is none, and
    `reason` the reason for it. `bound` says that the value is a `lower` or `upper` bound of what was measured. Fewer
    than `least_seeds` reproduce nothing; one is enough only where no training was random. With `of_ratio` the value
    is a ratio of two means, which is compared by its logarithm, and tolerances are relative. `alternative` is what a
    single draw must be told from.
    """

    value: float
    std: float | None = None
    n: int | None = None
    better: int = 0
    declared: float | None = None
    default: float | None = None
    reason: str = ""
    bound: Literal["lower", "upper"] | None = None
    least_seeds: int = LEAST_SEEDS
    of_ratio: bool = False
    alternative: float = math.nan

    @classmethod
    def of(cls, value: PublishedValue, reference: float | None, least_seeds: int) -> "Target | None":
        """The target of a published value, a time relative to `reference`; None if the value is not known."""
        if value.value is None:
            return None
        metric, of_ratio = METRICS[value.metric], value.is_ratio or value.relative_to is not None
        return cls(
            value=value.value / reference if reference else value.value,
            std=value.std,
            n=value.n,
            better=metric.sign,
            declared=value.tolerance,
            default=RATIO_TOLERANCE if of_ratio else metric.tolerance,
            reason=value.tolerance_reason or (RATIO_TOLERANCE_REASON if of_ratio else metric.tolerance_reason),
            bound=value.bound,
            least_seeds=least_seeds,
            of_ratio=of_ratio,
        )

    @property
    def has_spread(self) -> bool:
        """Whether a spread decides: no tolerance is declared, and it is a mean of several seeds, or a single draw."""
        return self.is_draw or (self.declared is None and self.std is not None and self.n is not None and self.n >= 2)

    @property
    def is_draw(self) -> bool:
        """Whether it is the number of a single random training, to be compared with the spread of ours."""
        return self.declared is None and self.n == 1 and self.bound is None and self.least_seeds > 1

    @property
    def tolerance(self) -> Tolerance | None:
        """The tolerance that applies; None if neither the value nor its metric has one."""
        if self.declared is not None:
            return Tolerance(self.declared, self._because("declared"))
        if self.default is None:
            return None
        if self.is_draw:
            return Tolerance(self.default, "the metric's default, for the deviation of a single seed")
        if self.has_spread:
            return Tolerance(self.default, "Welch's interval, resolved to the metric's default")
        return Tolerance(self.default, self._because("the metric's default"))

    @property
    def assumed_std(self) -> float:
        return ASSUMED_SHARE * self.tolerance.value if self.tolerance else 0.0

    @property
    def shown_tolerance(self) -> Tolerance | None:
        """The tolerance as rows show it: a bound has none, that of a ratio is relative."""
        if self.bound or self.tolerance is None:
            return None
        basis = f"relative, of a ratio, {self.tolerance.basis}" if self.of_ratio else self.tolerance.basis
        return Tolerance(self.tolerance.value, basis)

    def ours(self, *samples: SeedValues) -> float:
        """Our mean, or the difference or ratio of our two; NaN without finite results."""
        first, *others = (sample.mean for sample in samples)
        if not others:
            return first
        [second] = others
        if not self.of_ratio:
            return first - second
        return first / second if second else math.nan

    def _because(self, basis: str) -> str:
        return f"{basis}: {self.reason}" if self.reason else basis


def compare(target: Target, *samples: SeedValues) -> Verdict:
    """The verdict on the mean of our seeds, or on the difference or ratio of the means of two series."""
    if target.of_ratio:
        found = compare(_logarithmic(target), *map(_logarithms, samples))
        ratios = f"ratio {number(target.ours(*samples), 3)}, published {number(target.value, 3)}"
        return replace(found, reason=f"{ratios}; of their logarithms: {found.reason}")
    for sample in samples:
        if not math.isfinite(sample.mean):
            return Verdict(DISAGREES, BY_RUNS, f"diverged: no finite mean of {sample.n} seeds")
    if target.tolerance is None:
        return Verdict(UNTESTED, NOT_COMPARABLE, "neither the value nor its metric has a tolerance: declare one")
    half = half_width([(sample.std, sample.n) for sample in samples], target)
    difference = rounding.difference(target.ours(*samples), target.value)
    n = min(sample.n for sample in samples)
    word, because = _word(difference, half, target, n)
    decimals = decimals_for(half)
    interval = f"difference {signed(difference, decimals)} ± {number(half, decimals)} (95 %{_assumed(samples, target)})"
    if because == TOO_FEW:
        return Verdict(
            word, because, f"{interval} against {_allowed(target)}; {_seeds_to_decide(samples, difference, target)}"
        )
    places = ("on the right side of", "on the wrong side of") if target.bound else ("within", "outside")
    place = places[word != AGREES]
    return Verdict(word, because, f"{interval} {place} {_allowed(target)}")


def _logarithmic(target: Target) -> Target:
    """A ratio's target on the scale on which it is compared."""
    declared, default = (x if x is None else math.log1p(x) for x in (target.declared, target.default))
    return replace(target, value=math.log(target.value), declared=declared, default=default, of_ratio=False)


def _logarithms(times: SeedValues) -> SeedValues:
    return SeedValues.of(math.log(value) if value > 0 else math.nan for value in times.values)


def half_width(samples: Sequence[tuple[float, int]], target: Target) -> float:
    """Half the width of the 95 % interval of the difference.

    `samples` has the standard deviation and the number of seeds of one series, or of the two whose difference is
    compared. With a published deviation it is Welch's interval, in which a single seed borrows that deviation.
    """
    if target.is_draw:
        # Of two series, the published difference is one draw of each.
        spreads = ((target.assumed_std if math.isnan(std) else std, n) for std, n in samples)
        error, degrees = welch_error(*((std**2 * (1 + 1 / n), max(n - 1, 1)) for std, n in spreads))
        return quantile(degrees) * error
    if target.has_spread:
        [(std, n)] = samples
        assert target.std is not None
        assert target.n is not None
        if n < 2:
            return quantile(target.n - 1) * target.std * math.sqrt(1 + 1 / target.n)
        error, degrees = welch_error((std**2 / n, n - 1), (target.std**2 / target.n, target.n - 1))
        return quantile(degrees) * error
    error, degrees = welch_error(*(_moderated(std, n, target.assumed_std) for std, n in samples))
    return quantile(degrees) * error


def _moderated(std: float, n: int, assumed: float) -> tuple[float, float]:
    """The variance of a mean of n seeds, and its degrees of freedom; without an assumed deviation, Student's."""
    own = (n - 1) * std**2 if n > 1 else 0.0
    weight = ASSUMED_DEGREES if assumed else 0
    degrees = n - 1 + weight
    return (own + weight * assumed**2) / max(degrees, 1) / n, max(degrees, 1)


def record(ours: float, target: Target) -> Verdict:
    """The verdict on a number of one seed that is the same problem here: nothing is random, so that it may be equal."""
    if not math.isfinite(ours):
        return Verdict(DISAGREES, BY_RUNS, "diverged: the search found nothing")
    assert target.tolerance
    if abs(ours - target.value) <= _EQUAL * abs(target.value):
        return Verdict(AGREES, BY_RUNS, "equal to the record of this seed")
    word = AGREES if abs(ours - target.value) <= target.tolerance.value else DISAGREES
    return Verdict(word, BY_RUNS, f"differs from the record of this seed by {100 * (ours / target.value - 1):+.2g} %")


def draw_of_record(noisy: tuple[float, float], quiet: float, target: Target) -> Verdict:
    """The verdict on a number of one training with noise of its own, on a problem that is the same here.

    It agrees if it lies in the range of our trainings with other noise, and this excludes the number without noise.
    """
    low, high = noisy
    if not all(map(math.isfinite, (low, high, quiet))):
        return Verdict(DISAGREES, BY_RUNS, "diverged: no finite errors")
    found = f"the range of {NOISY_TRAININGS} trainings with other noise, {low:.4g} to {high:.4g} (95 %)"
    if not low <= target.value <= high:
        return Verdict(DISAGREES, BY_RUNS, f"outside {found}")
    if low <= quiet <= high:
        return Verdict(OPEN, TOO_FEW, f"within {found}, and so is {quiet:.4g} without noise")
    alone = f"less than {LEAST_ERROR:g}" if quiet < LEAST_ERROR else f"{quiet:.4g}"
    return Verdict(AGREES, BY_RUNS, f"within {found}, which excludes {alone} without noise")


def record_with_rate(steps: Verdict, ours: float, published: float, target: Target) -> Verdict:
    """The verdict on a search whose steps agree: its rate must, too, within the same relative tolerance."""
    assert target.tolerance
    rate = record(ours, Target(published, declared=target.tolerance.value / target.value * published))
    reason = f"steps {steps.reason}" if rate.word == AGREES else f"learning rate {rate.reason}"
    return replace(rate, reason=reason)


def planned(computed: float, target: Target) -> Verdict:
    """The verdict on a number that follows from the schedule alone, such as the communication volume."""
    tolerance = planned_tolerance(target)
    difference = computed - target.value
    # A decimal fraction is not exact in binary: 25.05 must be within half a unit of 25.0.
    near = abs(difference) <= tolerance.value or math.isclose(abs(difference), tolerance.value, rel_tol=1e-9)
    text = f"difference {signed(difference, 3)}, tolerance {tolerance.value:g} ({tolerance.basis})"
    return Verdict(UNTESTED if near else DISAGREES, ARITHMETIC, text)


def planned_tolerance(target: Target) -> Tolerance:
    """The declared tolerance, otherwise half a unit of the last printed decimal."""
    if target.tolerance is not None:
        return target.tolerance
    return Tolerance(0.5 * 10.0 ** -decimals_of(target.value), "half a unit of the last printed decimal")


def _word(difference: float, half: float, target: Target, n: int) -> tuple[str, str]:
    """The verdict and why."""
    if n < target.least_seeds:
        return OPEN, TOO_FEW
    low, high = difference - half, difference + half
    if target.bound:
        inside, outside = (low >= 0, high < 0) if target.bound == "lower" else (high <= 0, low > 0)
        return (AGREES, BY_RUNS) if inside else (DISAGREES, BY_RUNS) if outside else (OPEN, TOO_FEW)
    assert target.tolerance is not None
    tolerance = target.tolerance.value
    edge = 0.0 if target.has_spread else tolerance
    if low > edge or high < -edge:
        return (OPEN, BETTER) if target.better * difference > 0 else (DISAGREES, BY_RUNS)
    if target.is_draw:
        excluded = abs(difference + target.value - target.alternative) > half
        return (AGREES, BY_RUNS) if excluded else (OPEN, TOO_FEW)
    agrees = half <= tolerance if target.has_spread else (low >= -edge and high <= edge)
    return (AGREES, BY_RUNS) if agrees else (OPEN, TOO_FEW)


def _seeds_to_decide(samples: Sequence[SeedValues], difference: float, target: Target) -> str:
    """The number of seeds of each series with the same means and deviations that would suffice for a verdict."""
    borrowed = target.std if target.has_spread and target.std is not None else target.assumed_std
    deviations = [borrowed if math.isnan(sample.std) else sample.std for sample in samples]
    for n in range(min(sample.n for sample in samples) + 1, MOST_SEEDS + 1):
        if _word(difference, half_width([(std, n) for std in deviations], target), target, n)[1] != TOO_FEW:
            return f"about {n} seeds would decide"
    return f"not even {MOST_SEEDS} seeds would decide"


def _assumed(samples: Sequence[SeedValues], target: Target) -> str:
    """The words that say so where the interval rests on an assumed or borrowed deviation alone."""
    if all(sample.n > 1 for sample in samples):
        return ""
    return ", one seed with the published deviation" if target.has_spread else ", one seed with an assumed deviation"


def _allowed(target: Target) -> str:
    assert target.tolerance is not None
    if target.bound:
        return f"the {target.bound} bound {target.value:.4g}"
    if target.is_draw:
        alternative = "no named alternative" if math.isnan(target.alternative) else f"{target.alternative:.4g}"
        return f"the interval of one more of our trainings, to be told from {alternative}"
    if target.has_spread:
        return f"the published spread, to be resolved to {target.tolerance.value:g}"
    return f"± {target.tolerance.value:.4g} ({target.tolerance.basis})"


def welch_error(*means: tuple[float, float]) -> tuple[float, float]:
    """The standard error of a sum or difference of means, and its degrees of freedom (Welch-Satterthwaite).

    Each mean is given by its variance and degrees of freedom. From means and deviations, scipy.stats computes tests but
    no confidence intervals.
    """
    total = math.fsum(variance for variance, _ in means)
    if total == 0:
        return 0.0, 1.0
    # As fractions of the sum, because squares of tiny variances would underflow.
    return math.sqrt(total), 1 / math.fsum((variance / total) ** 2 / degrees for variance, degrees in means)


def quantile(degrees: float, confidence: float = CONFIDENCE) -> float:
    """The two-sided quantile of Student's t: scipy.stats.t.ppf, but fast enough for a thousand numbers of seeds."""
    return float(stdtrit(degrees, 0.5 + confidence / 2))

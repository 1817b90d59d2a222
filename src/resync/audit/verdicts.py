"""Verdicts: a closed list of words, each with a rule and a reason, as pure functions of numbers.

A difference is always ours minus published. Its 95 % confidence interval decides, never the mean alone:
* with a declared tolerance or the metric's default: an equivalence test. `reproduced` if Student's interval lies
  inside ± tolerance, `better` or `not reproduced` if it lies outside, otherwise `inconclusive`;
* with a published standard deviation and number of seeds: Welch's interval of the difference of two means.
  `reproduced` if it contains 0 and is no wider than the metric's default tolerance on each side, `inconclusive`
  if it is wider (noise is not agreement), `better` or `not reproduced` if it does not contain 0;
* a planned number has no spread: it agrees within its tolerance, or it does not.
"""

import math
from dataclasses import dataclass

from scipy.special import stdtrit

from resync.results.evidence import Evidence, decimals_of, number, signed

VERDICTS = {
    "reproduced": ("✓", "agrees with the published value within its tolerance"),
    "better": ("✚", "outside the tolerance on the good side; needs an explanation"),
    "inconclusive": ("≈", "the available seeds cannot decide"),
    "not reproduced": ("✗", "outside the tolerance on the bad side"),
    "diverged": ("⚠", "at least one seed ended without a finite result"),
    "partial": ("◔", "fewer seeds than declared"),
    "not run": ("○", "no finished run"),
    "stale": ("⟳", "the configuration on disk is not the declared one"),
    "not comparable": ("⇲", "a different scale or hardware than the published value or claim"),
    "unverified source": ("?", "the published value itself is uncertain"),
    "holds": ("✓", "an effect smaller than the claimed one is rejected"),
    "fails": ("✗", "an effect as large as the claimed one is rejected"),
}
"""The closed list: each verdict with its sign and its meaning; `holds` and `fails` are verdicts on claims."""

FAILURES = ("not reproduced", "diverged", "fails")
CONFIDENCE = 0.95
MOST_SEEDS = 1000


@dataclass(frozen=True)
class Verdict:
    """One word of VERDICTS and the reason for it."""

    word: str
    reason: str

    def __post_init__(self) -> None:
        assert self.word in VERDICTS, self.word
        assert self.reason


@dataclass(frozen=True)
class Tolerance:
    """The largest difference that counts as agreement, in the metric's unit; `basis` says where it comes from."""

    value: float
    basis: str


@dataclass(frozen=True)
class Target:
    """A published value to compare with. `better` is 1 if larger is better, -1 if smaller is better, otherwise 0.

    `declared` is the tolerance declared for this value and `default` that of its metric; None if there is none.
    """

    value: float
    std: float | None = None
    n: int | None = None
    better: int = 0
    declared: float | None = None
    default: float | None = None

    @property
    def has_spread(self) -> bool:
        """Whether the published spread decides: no tolerance is declared, and the value is a mean of several seeds."""
        return self.declared is None and self.std is not None and self.n is not None and self.n >= 2

    @property
    def tolerance(self) -> Tolerance | None:
        """The tolerance that applies; None if neither the value nor its metric has one."""
        if self.declared is not None:
            return Tolerance(self.declared, "declared")
        if self.default is None:
            return None
        basis = "Welch's interval, resolved to the metric's default" if self.has_spread else "the metric's default"
        return Tolerance(self.default, basis)


def compare(ours: Evidence, target: Target) -> Verdict:
    """The verdict on the mean of our seeds."""
    if not math.isfinite(ours.mean):
        return Verdict("diverged", f"no finite mean of {ours.n} seeds")
    if target.tolerance is None:
        return Verdict("not comparable", "neither the value nor its metric has a tolerance: declare one")
    half = half_width(ours.std, ours.n, target)
    if math.isnan(half):
        return Verdict("inconclusive", "one seed has no interval; at least 2 are needed")
    difference, tolerance = ours.mean - target.value, target.tolerance.value
    word = _word(difference, half, tolerance, target)
    interval = f"difference {signed(difference)} ± {number(half, 2)} (95 %)"
    if word == "inconclusive":
        return Verdict(word, f"{interval} against {_allowed(target)}; {_seeds_to_decide(ours, target)}")
    place = "within" if word == "reproduced" else "outside"
    return Verdict(word, f"{interval} {place} {_allowed(target)}")


def half_width(std: float, n: int, target: Target) -> float:
    """Half the width of the 95 % interval of the difference for `n` seeds with deviation `std`; NaN if undefined.

    For a single seed the published deviation is used; without one there is no interval.
    """
    if n < 2:
        if target.std is None or target.n is None or target.n < 2:
            return math.nan
        return _quantile(target.n - 1) * target.std * math.sqrt(1 + target.has_spread / target.n)
    if not target.has_spread:
        return _quantile(n - 1) * std / math.sqrt(n)
    assert target.std is not None
    assert target.n is not None
    error, degrees = welch_error(std, n, target.std, target.n)
    return _quantile(degrees) * error


def planned(computed: float, target: Target) -> Verdict:
    """The verdict on a number that follows from the schedule alone, such as the communication volume."""
    tolerance = planned_tolerance(target)
    difference = computed - target.value
    # A decimal fraction is not exact in binary: 25.05 must be within half a unit of 25.0.
    near = abs(difference) <= tolerance.value or math.isclose(abs(difference), tolerance.value, rel_tol=1e-9)
    text = f"difference {signed(difference, 3)}, tolerance {tolerance.value:g} ({tolerance.basis})"
    return Verdict("reproduced" if near else "not reproduced", text)


def planned_tolerance(target: Target) -> Tolerance:
    """The declared tolerance, otherwise half a unit of the last printed decimal."""
    if target.declared is not None:
        return Tolerance(target.declared, "declared")
    return Tolerance(0.5 * 10.0 ** -decimals_of(target.value), "half a unit of the last printed decimal")


def _word(difference: float, half: float, tolerance: float, target: Target) -> str:
    low, high = difference - half, difference + half
    edge = 0.0 if target.has_spread else tolerance
    if low > edge or high < -edge:
        return "better" if target.better * difference > 0 else "not reproduced"
    agrees = half <= tolerance if target.has_spread else (low >= -edge and high <= edge)
    return "reproduced" if agrees else "inconclusive"


def _seeds_to_decide(ours: Evidence, target: Target) -> str:
    """The number of seeds with the same mean and deviation that would suffice for a verdict."""
    assert target.tolerance is not None
    difference, std = ours.mean - target.value, ours.std
    if math.isnan(std):
        std = target.std or 0.0
    for n in range(ours.n + 1, MOST_SEEDS + 1):
        if _word(difference, half_width(std, n, target), target.tolerance.value, target) != "inconclusive":
            return f"about {n} seeds would decide"
    return f"not even {MOST_SEEDS} seeds would decide"


def _allowed(target: Target) -> str:
    assert target.tolerance is not None
    if target.has_spread:
        return f"the published spread, to be resolved to {target.tolerance.value:g}"
    return f"± {target.tolerance.value:g} ({target.tolerance.basis})"


def welch_error(std: float, n: int, other_std: float, other_n: int) -> tuple[float, float]:
    """The standard error of the difference of two means, and its degrees of freedom (Welch-Satterthwaite).

    From means and deviations, scipy.stats computes tests but no confidence intervals.
    """
    own, other = std**2 / n, other_std**2 / other_n
    if own + other == 0:
        return 0.0, 1.0
    share = own / (own + other)  # as fractions of the sum, because squares of tiny variances would underflow
    return math.sqrt(own + other), 1 / (share**2 / (n - 1) + (1 - share) ** 2 / (other_n - 1))


def _quantile(degrees: float) -> float:
    """The two-sided quantile of Student's t: scipy.stats.t.ppf, but fast enough for a thousand numbers of seeds."""
    return float(stdtrit(degrees, 0.5 + CONFIDENCE / 2))

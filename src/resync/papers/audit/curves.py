"""Claims about how the steps that searches find depend on the number of workers, and on the series."""

import math
from collections.abc import Mapping
from statistics import fmean, linear_regression, median

from resync.papers.audit.effects import ROUNDING
from resync.papers.audit.verdicts import AGREES, BY_RUNS, DISAGREES, Verdict
from resync.papers.paper.claim import CurveTest
from resync.runs.results.runs import RunState
from resync.runs.results.seed_values import number

Steps = Mapping[tuple[int, int], float]
"""The steps that were found, by seed and number of workers."""


def steps_of(states: list[RunState]) -> Steps:
    """Those of the finished runs of a series."""
    searched: dict[tuple[int, int], float] = {}
    for state in states:
        if state.status == "finished" and state.result:
            result = state.result
            pairs = zip(result.curve("searched_workers"), result.curve("tuned_steps"), strict=True)
            searched |= {(state.run.seed, int(workers)): float(steps) for workers, steps in pairs}
    return searched


def values_of(test: CurveTest, steps: Steps, beside: Steps) -> list[float]:
    """The values that must lie within the bounds of a test; `beside` are the steps by which a ratio divides."""
    workers = sorted({n for _, n in steps})
    seeds = sorted({seed for seed, _ in steps})
    if test.quantity == "slope":
        logs = [[math.log(steps[seed, n]) for n in workers] for seed in seeds]
        return [linear_regression([math.log(n) for n in workers], of_seed).slope for of_seed in logs]
    numbers = test.workers or tuple(workers)
    pairs = list(zip(numbers, test.than_workers or numbers, strict=True))
    if test.of == "means":
        return [fmean(steps[seed, n] for seed in seeds) / fmean(beside[seed, m] for seed in seeds) for n, m in pairs]
    ratios = [steps[seed, n] / beside[seed, m] for seed in seeds for n, m in pairs]
    return [median(ratios)] if test.of == "median" else ratios


def verdict(tests: Mapping[str, tuple[CurveTest, list[float]]]) -> Verdict:
    """The verdict on bounds and the values that must lie within them, by what they are of."""
    broken = [f"{name} {in_words(*tested)}" for name, tested in tests.items() if not _holds(*tested)]
    if broken:
        return Verdict(DISAGREES, BY_RUNS, f"{len(broken)} of {len(tests)} bounds do not hold: {'; '.join(broken)}")
    return Verdict(AGREES, BY_RUNS, f"all {len(tests)} bounds hold" if len(tests) > 1 else "the bound holds")


def in_words(test: CurveTest, values: list[float]) -> str:
    """`0.84 to 1.26, claimed: at least 0.5`."""
    ends = [number(end, 3) for end in dict.fromkeys((min(values), max(values)))]
    bounds = [
        f"{word} {bound:g}" for word, bound in (("at least", test.least), ("at most", test.most)) if bound is not None
    ]
    return f"{' to '.join(ends)}, claimed: {' and '.join(bounds)}"


def _holds(test: CurveTest, values: list[float]) -> bool:
    least = -math.inf if test.least is None else test.least - ROUNDING
    most = math.inf if test.most is None else test.most + ROUNDING
    return all(least <= value <= most for value in values)

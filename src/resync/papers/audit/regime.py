"""Whether a claim could have been true of the trainings that test it: the regime of its experiment, measured on runs.

A regime is one for all claims on an experiment. Its bounds are checked at the epoch of the tested value, which is
another one in every run for a best value.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from statistics import fmean
from typing import Any

import numpy as np

from resync.base.settings.tree import leaves
from resync.papers.audit.sides import Groups
from resync.papers.audit.values import measured
from resync.papers.paper.claim import REDUCED, Bound, Claim
from resync.papers.paper.paper import Experiment, Paper
from resync.papers.plan.dose import dose
from resync.runs.metrics.registry import EXACT, METRICS
from resync.runs.results.errors import ResultsError
from resync.runs.results.runs import RunResult, RunState
from resync.runs.results.seed_values import decimals_for, number
from resync.runs.run import Run

_ALL_RIGHT = 100.0
"""The training accuracy at which gradients of clean images, none of them augmented, have no noise any more, in %."""


def outside(paper: Paper, claim: Claim, scale: str, groups: Groups, agrees: Callable[[str], bool]) -> str:
    """Why a claim is outside of the regime of its experiment at a scale; empty if it is inside.

    `agrees` says whether another claim of the paper does. A claim that nothing is lost needs one at a reduced scale: a
    setting that shows no effect of anything would bear it out.
    """
    if scale not in REDUCED:
        return ""
    reasons = [] if claim.is_ours else _of_experiment(paper, claim, groups)
    if claim.control and not agrees(claim.control):
        reasons.append(f"its positive control {claim.control} does not agree")
    elif claim.at_least < 0 and not (claim.control or claim.is_ours):
        reasons.append("nothing is lost, without a positive control that shows that something could be")
    return "; ".join(reasons)


def _of_experiment(paper: Paper, claim: Claim, groups: Groups) -> list[str]:
    """What the compared series lack of the regime of the claim's experiment."""
    regime = paper.experiments[claim.experiment].regime
    if regime is None:
        return ["its experiment declares no regime in which claims of the paper are tested"]
    reasons = [reason for bound in regime.bounds for reason in _beyond(paper, claim, bound, groups)]
    if regime.rates == "tuned":
        return [*reasons, *_untuned(paper, claim, groups)]
    rates = _rates(paper, claim, groups)
    if len(set(rates.values())) != (1 if regime.rates == "shared" else len(rates)):
        shown = ", ".join(f"{rate:g} of {label}" for label, rate in rates.items())
        reasons.append(f"peak rates are {shown}, needed: {'one for all' if regime.rates == 'shared' else 'several'}")
    return reasons


def _beyond(paper: Paper, claim: Claim, bound: Bound, groups: Groups) -> Iterator[str]:
    """What series do not keep of a bound, at the epoch at which the claim tests them."""
    metric = METRICS[bound.metric]
    for place in claim.compared if bound.series is None else [claim.where(bound.series)]:
        what = f"{metric.title[0].lower()}{metric.title[1:]} of {paper.experiments[place[0]].labels[place[1]]}"
        states = [state for state in groups.get(place, []) if state.status == "finished" and state.result]
        tested = claim if place in claim.compared else None
        try:
            values = [_reached(state, bound.metric, tested) for state in states]
        except ResultsError as error:
            yield f"{what} is not known: {error}"
            continue
        mean = fmean(values) if values else math.nan
        if not bound.keeps(mean):
            unit = "" if metric.unit == "1" else f" {metric.unit}"
            shown = number(mean, min(4, decimals_for(mean))) + unit if math.isfinite(mean) else "not known"
            yield f"{what} is {shown}, needed: {bound.allowed}"


def _reached(state: RunState, metric: str, tested: Claim | None) -> float:
    """A metric of a run at the epoch of the value that a claim tests; of a run that it does not compare, at its end."""
    assert state.result
    epoch = _tested_epoch(state.result, tested) if tested else None
    if metric in EXACT:
        return dose(state.run, _noisy_steps(state.run, state.result, epoch))
    return state.result.final(metric) if epoch is None else state.result.at_epoch(metric, epoch)


def _tested_epoch(result: RunResult, claim: Claim) -> float | None:
    """The epoch whose evaluation is tested; None for the end of the run."""
    if claim.at_epoch is not None or not claim.metric.startswith("best_"):
        return claim.at_epoch
    curve = METRICS[claim.metric].sign * result.curve(claim.metric.removeprefix("best_"))
    return float(result.curve("epoch")[np.nanargmax(curve)])


def _noisy_steps(run: Run, result: RunResult, epoch: float | None) -> int:
    """The steps up to an epoch whose gradients have noise: until all training images are right, unless they change."""
    steps = run.total_steps if epoch is None else round(epoch * run.steps_per_epoch)
    augmented = run.data.options.get("augmentation", "none") != "none"
    if getattr(run.loss, "label_noise", 0) or augmented or "train_top1" not in result.evaluations:
        return steps
    right = result.curve("epoch")[result.curve("train_top1") >= _ALL_RIGHT]
    return min(steps, round(float(right.min()) * run.steps_per_epoch)) if len(right) else steps


def _rates(paper: Paper, claim: Claim, groups: Groups) -> dict[str, float]:
    """The peak rates of the compared series, by label."""
    return {paper.experiments[experiment].labels[series]: groups[experiment, series][0].run.schedule.peak
            for experiment, series in claim.compared if groups.get((experiment, series))}  # fmt: skip


def _untuned(paper: Paper, claim: Claim, groups: Groups) -> Iterator[str]:
    """Series whose rate is not the best of a grid, and grids that do not let both sides of the claim be compared."""
    grids = {}
    for experiment, series in claim.compared:
        declared, label = paper.experiments[experiment], paper.experiments[experiment].labels[series]
        if declared.tuned is None or series not in declared.tuned.grid:
            yield f"the rate of {label} is not tuned"
        elif declared.tuned.metric != claim.metric:
            yield f"the rate of {label} is tuned by {declared.tuned.metric}, tested is {claim.metric}"
        else:
            grid = [groups.get(claim.where(name), []) for name in declared.tuned.grid[series]]
            ours = groups.get((experiment, series), [])
            if not ours or not all(grid):
                yield f"the grid of {label} has no results"
                continue
            grids[label] = sorted({states[0].run.schedule.peak for states in grid})
            yield from _not_the_best(declared, label, ours[0].run, grid)
    first, *others = grids.items() or [("", [])]
    for label, rates in others:
        if rates != first[1]:
            shown = (f"{', '.join(f'{rate:g}' for rate in peaks)} for {of}" for of, peaks in (first, (label, rates)))
            yield f"rates are tuned on different grids, {' and '.join(shown)}"


def _not_the_best(experiment: Experiment, label: str, ours: Run, grid: list[list[RunState]]) -> Iterator[str]:
    """What keeps the settings of a series from being the best ones of its grid."""
    assert experiment.tuned
    metric = experiment.tuned.metric
    means = [measured(states, metric)[0].mean for states in grid]
    if any(map(math.isnan, means)):
        yield f"the grid of {label} has no results"
        return
    runs = [states[0].run for states in grid]
    best = max(range(len(grid)), key=lambda place: METRICS[metric].sign * means[place])
    rates = [run.schedule.peak for run in runs]
    if rates[best] in (min(rates), max(rates)):
        yield f"the best rate of {label}, {rates[best]:g}, is at the edge of its grid"
    if any(run.sync != ours.sync for run in runs):
        yield f"the grid of {label} has been trained by another algorithm"
    if any(_validated_on(run) == _validated_on(ours) for run in runs):
        yield f"the grid of {label} is compared on the images that the claim uses"
    settings = [_settings(run) for run in runs]
    varied = [key for key in settings[0] if len({str(setting.get(key)) for setting in settings}) > 1]
    mine = _settings(ours)
    if other := [key for key in varied if mine.get(key) != settings[best].get(key)]:
        yield f"{label} has {other[0]} {mine.get(other[0])}, the best of its grid {settings[best].get(other[0])}"


def _settings(run: Run) -> Mapping[str, Any]:
    names = ("experiment", "series", "label", "seed", "start_hash")
    return {key: value for key, value in leaves(run.model_dump(mode="json")) if key not in names}


def _validated_on(run: Run) -> tuple[str, Any]:
    """What says on which images a run is validated: without some that are held out, on those of the data set."""
    return run.data.name, run.data.options.get("held_out")

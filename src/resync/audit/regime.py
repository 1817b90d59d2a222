"""Whether a claim could have been true of the trainings that test it: what its regime demands, checked on the runs."""

from collections.abc import Callable, Iterator

from resync.audit.sides import Groups
from resync.audit.values import known_beforehand, measured
from resync.metrics.registry import EXACT, METRICS
from resync.paper.claim import REDUCED, Bound, Claim
from resync.paper.paper import Paper
from resync.results.seed_values import decimals_for, number
from resync.settings.tree import leaves

_NO_SETTING = ("experiment", "series", "label", "seed", "start_hash")


def outside(paper: Paper, claim: Claim, scale: str, groups: Groups, holds: Callable[[str], bool]) -> str:
    """Why a claim is outside of its regime at a scale; empty if it is inside.

    `holds` says whether another claim of the paper holds. A claim that nothing is lost needs one at a reduced scale: a
    setting that shows no effect of anything would bear it out.
    """
    regime = next((regime for at, regime in claim.regime.items() if at == scale), None)
    if regime and regime.outside:
        return regime.outside
    found = [*(_beyond(paper, claim, bound, groups) for bound in regime.values)] if regime else []
    if regime and regime.tuned:
        found += _untuned(paper, claim, groups)
    if regime and regime.control and not holds(regime.control):
        found.append(f"its positive control {regime.control} does not hold")
    elif claim.at_least < 0 and scale in REDUCED and not claim.is_ours and not (regime and regime.control):
        found.append("nothing is lost, without a positive control that shows that something could be")
    return "; ".join(filter(None, found))


def _beyond(paper: Paper, claim: Claim, bound: Bound, groups: Groups) -> str:
    """A bound of the regime that the runs do not keep; empty if they do."""
    place = claim.where(bound.series)
    states = groups.get(place, [])
    if bound.metric in EXACT:
        values, problem = known_beforehand((state.run for state in states), bound.metric, bound.at_epoch)
    else:
        values, problem = measured(states, bound.metric, bound.at_epoch)
    metric = METRICS[bound.metric]
    what = f"{metric.title[0].lower()}{metric.title[1:]} of {paper.experiments[place[0]].labels[place[1]]}"
    if not values.finite:
        return f"{what} is not known{f': {problem}' if problem else ''}"
    least, most = bound.least, bound.most
    if (least is None or values.mean >= least) and (most is None or values.mean <= most):
        return ""
    unit = "" if metric.unit == "1" else f" {metric.unit}"
    allowed = [f"at {word} {value:g}" for word, value in (("least", least), ("most", most)) if value is not None]
    shown = number(values.mean, min(4, decimals_for(values.mean)))
    return f"{what} is {shown}{unit}, needed: {' and '.join(allowed)}"


def _untuned(paper: Paper, claim: Claim, groups: Groups) -> Iterator[str]:
    """Series that do not have the settings of the best one of their grid."""
    for experiment, series in claim.compared:
        tuned, label = paper.experiments[experiment].tuned, paper.experiments[experiment].labels[series]
        assert tuned
        grid = [groups.get(tuple(name.split("/")), []) for name in tuned.grid[series]]  # type: ignore[arg-type]
        means = [measured(states, tuned.metric)[0].mean for states in grid]
        known = [(mean, states[0].run) for mean, states in zip(means, grid, strict=True) if mean == mean]
        if len(known) < len(grid) or not groups.get((experiment, series)):
            yield f"the grid of {label} has no results"
            continue
        settings = [dict(leaves(run.model_dump(mode="json"))) for _, run in known]
        varied = [key for key in settings[0] if key not in _NO_SETTING and len({str(s.get(key)) for s in settings}) > 1]
        best = max(range(len(known)), key=lambda place: METRICS[tuned.metric].sign * known[place][0])
        ours = dict(leaves(groups[experiment, series][0].run.model_dump(mode="json")))
        if other := [key for key in varied if ours.get(key) != settings[best].get(key)]:
            yield f"{label} has {other[0]} {ours.get(other[0])}, the best of its grid {settings[best].get(other[0])}"

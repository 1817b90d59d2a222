"""The values of a series: measured by its finished seeds or known in advance, in the units of published values."""

from collections.abc import Iterable

from resync.audit.verdicts import Verdict
from resync.plan import volume
from resync.plan.averaging_error import averaging_error
from resync.results.errors import ResultsError
from resync.results.runs import RunState
from resync.results.seed_values import SeedValues
from resync.run import Run

BEFOREHAND = "from the configuration"
"""Origin of a value that needs no run."""
UNKNOWN_HARDWARE = "unknown (imported)"


def measured(states: Iterable[RunState], metric: str) -> tuple[SeedValues, str]:
    """The values of the finished runs in the order of the seeds; none and a reason if a run lacks the metric."""
    results = [state.result for state in states if state.status == "finished" and state.result]
    try:
        return SeedValues.of(result.final(metric) for result in results), ""
    except ResultsError as error:
        return SeedValues(()), str(error)


def measured_at(states: Iterable[RunState], metric: str, epoch: float) -> tuple[SeedValues, str]:
    """The values of the finished runs at the evaluation of an epoch; none and a reason if a run has none there."""
    results = [state.result for state in states if state.status == "finished" and state.result]
    try:
        return SeedValues.of(result.at_epoch(metric, epoch) for result in results), ""
    except ResultsError as error:
        return SeedValues(()), str(error)


def of_imported(verdict: Verdict, states: Iterable[RunState]) -> Verdict:
    """The verdict on values some of which are those of imported logs: that these agree is no reproduction."""
    results = [state.result for state in states if state.result]
    imported = sum(result.imported is not None for result in results)
    if not imported:
        return verdict
    word = "recomputed" if verdict.word in ("reproduced", "holds") else verdict.word
    return Verdict(word, f"{verdict.reason}; {imported} of {len(results)} runs are imported logs")


def hardware_of(states: Iterable[RunState]) -> set[str]:
    """Devices and numbers of processes with which the finished runs were trained; unknown for imported logs."""
    launches = [state.result.summary.get("launch") for state in states if state.result]
    return {f"{at['device']} in {at['world_size']} processes" if at else UNKNOWN_HARDWARE for at in launches}


def different_hardware(found: set[str]) -> str:
    """Why times of this hardware cannot be compared; empty if they can."""
    if len(found) > 1 or UNKNOWN_HARDWARE in found:
        return f"times of different or unknown hardware: {', '.join(sorted(found))}"
    return ""


def known_beforehand(runs: Iterable[Run], metric: str) -> tuple[SeedValues, str]:
    """The value that the configuration determines, the same for all seeds; none and a reason if it does not."""
    try:
        return SeedValues.of(_from_configuration(run, metric) for run in list(runs)[:1]), ""
    except ValueError as error:
        return SeedValues(()), str(error)


def _from_configuration(run: Run, metric: str) -> float:
    return averaging_error(run) if metric == "averaging_error" else float(getattr(volume(run), metric))


def unfinished(states: list[RunState]) -> tuple[str, str] | None:
    """The word and the reason for a series with unfinished seeds; None if every declared seed has finished."""
    if not states:
        return "not run", "no run is declared at this scale"
    for word in ("stale", "diverged"):
        found = [state for state in states if state.status == word]
        if found:
            which = f"seed {found[0].run.seed}" + (f" {found[0].reason}" if found[0].reason else "")
            return word, f"{len(found)} of {len(states)} seeds; {which}"
    missing = [state for state in states if not state.has_ended]
    if missing:
        word = "not run" if len(missing) == len(states) else "partial"
        first = missing[0]
        why = first.reason if first.status == "not run" else f"seed {first.run.seed} {first.status}: {first.reason}"
        return word, f"{len(states) - len(missing)} of {len(states)} seeds; {why}"
    return None

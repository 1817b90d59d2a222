"""The values of a series: measured by its finished seeds or known in advance, in the units of published values."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from functools import partial

from resync.papers.audit.verdicts import (
    AGREES,
    BY_RUNS,
    DISAGREES,
    LOGS_OF_OTHERS,
    NOT_COMPARABLE,
    NOT_RUN,
    OPEN,
    TOO_FEW,
    UNTESTED,
    Verdict,
)
from resync.papers.plan import volume
from resync.papers.plan.averaging_error import averaging_error
from resync.papers.plan.dose import dose
from resync.runs.exchanges.virtual_time import virtual_seconds
from resync.runs.metrics.registry import METRICS
from resync.runs.results.errors import ResultsError
from resync.runs.results.runs import RunResult, RunState
from resync.runs.results.seed_values import SeedValues
from resync.runs.run import Run

BEFOREHAND = "from the configuration"
"""Origin of a value that needs no run."""
UNKNOWN_HARDWARE = "unknown (imported)"


def measured(
    states: Iterable[RunState], metric: str, epoch: float | None = None, workers: int | None = None
) -> tuple[SeedValues, str]:
    """The values of the finished runs at their end, at an epoch, or of the search for a number of workers.

    None, and a reason, if a run does not have them.
    """
    results = [state.result for state in states if state.status == "finished" and state.result]

    def value(result: RunResult) -> float:
        if workers is not None:
            return result.at_workers(metric, workers)
        return result.final(metric) if epoch is None else result.at_epoch(metric, epoch)

    try:
        return SeedValues.of(map(value, results)), ""
    except ResultsError as error:
        return SeedValues(()), str(error)


def of_imported(verdict: Verdict, states: Iterable[RunState]) -> Verdict:
    """The verdict on values some of which are those of imported logs: that these agree is no reproduction."""
    results = [state.result for state in states if state.result]
    imported = sum(result.imported is not None for result in results)
    if not imported:
        return verdict
    reason = f"{verdict.reason}; {imported} of {len(results)} runs are imported logs"
    if verdict.word == AGREES:
        return Verdict(UNTESTED, LOGS_OF_OTHERS, reason)
    return replace(verdict, reason=reason)


def different_hardware(states: Iterable[RunState], metric: str) -> Verdict | None:
    """The verdict on times of different devices or processes per worker, or of imported logs; None if they compare.

    How a time grows with the number of workers is compared over different numbers of processes.
    """
    launches = [(state.result.summary.get("launch"), state.run.workers) for state in states if state.result]
    hardware = {
        f"{at['device']}, {Fraction(at['world_size'], workers)} processes per worker" if at else UNKNOWN_HARDWARE
        for at, workers in launches
    }
    if METRICS[metric].depends_on != "hardware" or (len(hardware) <= 1 and UNKNOWN_HARDWARE not in hardware):
        return None
    return Verdict(UNTESTED, NOT_COMPARABLE, f"times of different or unknown hardware: {'; '.join(sorted(hardware))}")


def known_beforehand(runs: Iterable[Run], metric: str, epoch: float | None = None) -> tuple[SeedValues, str]:
    """The value that the configuration determines at the end or at an epoch, the same for all seeds.

    None, and a reason, if it does not.
    """
    try:
        functions: dict[str, Callable[[Run], float]] = {
            "averaging_error": averaging_error,
            "dose": dose,
            "virtual_seconds": partial(virtual_seconds, epoch=epoch),
        }
        of = functions.get(metric, lambda run: float(getattr(volume(run), metric)))
        return SeedValues.of(of(run) for run in list(runs)[:1]), ""
    except ValueError as error:
        return SeedValues(()), str(error)


def unfinished(states: list[RunState]) -> Verdict | None:
    """The verdict on a series with unfinished seeds, without a comparison; None if every declared seed has finished."""
    if not states:
        return Verdict(UNTESTED, NOT_RUN, "no run is declared at this scale")
    for status, word, because in (("stale", UNTESTED, NOT_RUN), ("diverged", DISAGREES, BY_RUNS)):
        affected = [state for state in states if state.status == status]
        if affected:
            which = f"seed {affected[0].run.seed}" + (f" {affected[0].reason}" if affected[0].reason else "")
            return Verdict(word, because, f"{status}: {len(affected)} of {len(states)} seeds; {which}")
    missing = [state for state in states if not state.has_ended]
    if missing:
        word, because = (UNTESTED, NOT_RUN) if len(missing) == len(states) else (OPEN, TOO_FEW)
        first = missing[0]
        why = first.reason if first.status == "not run" else f"seed {first.run.seed} {first.status}: {first.reason}"
        return Verdict(word, because, f"{len(states) - len(missing)} of {len(states)} seeds; {why}")
    return None

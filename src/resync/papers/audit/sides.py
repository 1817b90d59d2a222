"""The series that a claim compares: their values by seed, and how they are tested."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Literal

from resync.papers.audit.rows import Ours, ours_of
from resync.papers.audit.values import BEFOREHAND, known_beforehand, measured
from resync.papers.paper.claim import Claim
from resync.papers.paper.paper import Blocks, Paper
from resync.runs.metrics.registry import METRICS
from resync.runs.results.runs import RunState
from resync.runs.results.seed_values import SeedValues, number
from resync.workers.formulas.rounding import difference

Groups = Mapping[tuple[str, str], list[RunState]]
"""The states of the runs by experiment and series."""
Test = Literal["welch", "paired", "exact", "curves", "ranks"]


@dataclass(frozen=True)
class ClaimSeries:
    """One series of a claim with the states of its runs."""

    name: str
    label: str
    states: list[RunState]
    claim: Claim
    blocks: Blocks

    @property
    def evidence(self) -> SeedValues:
        """The compared values: one per finished seed, or the one that follows from the configuration."""
        return self._found[0]

    @property
    def problem(self) -> str:
        """Why there are no values of the metric; empty if there are."""
        return self._found[1]

    @cached_property
    def _found(self) -> tuple[SeedValues, str]:
        if self.claim.is_exact:
            return known_beforehand((state.run for state in self.states), self.claim.metric)
        return measured(self.states, self.claim.metric, self.claim.at_epoch)

    @property
    def by_seed(self) -> dict[int, float]:
        """By seed, larger is better; a training that diverged has minus infinity, the worst value of all."""
        if self.problem:
            return {}
        sign = 1.0 if self.claim.direction == "higher" else -1.0
        seeds = [state.run.seed for state in self.states if state.status == "finished"]
        values = {seed: sign * value for seed, value in zip(seeds, self.evidence.values, strict=True)}
        if METRICS[self.claim.metric].depends_on == "hardware":
            return values
        values |= {state.run.seed: math.nan for state in self.states if state.status == "diverged"}
        return {seed: value if math.isfinite(value) else -math.inf for seed, value in values.items()}

    @property
    def block_of(self) -> dict[int, object]:
        """By seed, what makes it comparable with those of other series: itself, or the run from which it starts."""
        runs = [state.run for state in self.states]
        return {run.seed: run.start_directory if self.blocks == "start" else run.seed for run in runs}

    @property
    def trainings(self) -> dict[int, str]:
        """By seed, the digest of the parameters with which its training ended; empty if one is not known."""
        digests = {state.run.seed: (state.result.summary if state.result else {}).get("parameters_sha256")
                 for state in self.states}  # fmt: skip
        return {seed: digest for seed, digest in digests.items() if digest} if all(digests.values()) else {}

    def ours(self, scale: str) -> Ours:
        """The evidence in the form that rows show."""
        if not self.claim.is_exact:
            return ours_of(self.evidence, scale, self.states)
        text = f"{number(self.evidence.mean, 3)} ({BEFOREHAND})" if self.evidence.n else "none"
        return Ours(text, scale, mean=self.evidence.mean)


def series_of(paper: Paper, claim: Claim, groups: Groups) -> dict[str, ClaimSeries]:
    """The series of a claim by their names in it; `groups` may lack runs."""
    by_name = {}
    for name, (experiment, series) in zip(claim.series, claim.compared, strict=True):
        of = paper.experiments[experiment]
        states = groups.get((experiment, series), [])
        by_name[name] = ClaimSeries(name, of.labels[series], states, claim, of.blocks)
    return by_name


def test_of(claim: Claim, series: Iterable[ClaimSeries]) -> Test:
    """How a claim is decided; one over seeds is paired where its series have common blocks, models and data.

    Ranks are compared where a training has diverged.
    """
    if not claim.is_tested:
        return "exact" if claim.is_exact else "curves"
    series = list(series)
    if any(value == -math.inf for one in series for value in one.by_seed.values()):
        return "ranks"
    of_seed = {(one.blocks, *(getattr(run, name).model_dump_json() for name in ("model", "data")))
               for one in series for run in [state.run for state in one.states[:1]]}  # fmt: skip
    return "paired" if len(of_seed) == 1 else "welch"


def samples(test: Test, better: ClaimSeries, than: ClaimSeries) -> list[SeedValues]:
    """What is compared, larger is better: the values of both series, or the means of their differences by block."""
    ours, theirs = better.by_seed, than.by_seed
    if test != "paired":
        return [SeedValues.of(ours.values()), SeedValues.of(theirs.values())]
    blocks: dict[object, list[float]] = defaultdict(list)
    for seed in sorted(ours.keys() & theirs.keys()):
        blocks[better.block_of[seed]].append(difference(ours[seed], theirs[seed]))
    return [SeedValues.of(map(fmean, blocks.values()))]


def published_effect(paper: Paper, claim: Claim, scale: str) -> float | None:
    """By how much the better series is better in the paper's own numbers; None where it prints none of one."""
    if claim.published_effect is not None:
        return claim.published_effect
    if claim.curves or claim.order:
        return None
    values = {
        (value.experiment, value.series): value.value
        for value in reversed(paper.published_beside(scale))
        if (value.metric, value.at_epoch, value.scale) == (claim.metric, claim.at_epoch, "paper")
        and value.status != "measured" and not (value.than or value.at_workers or value.bound)
    }  # fmt: skip
    better, than = (values.get(place) for place in claim.compared)
    if better is None or than is None:
        return None
    return (better - than) * (1 if claim.direction == "higher" else -1)

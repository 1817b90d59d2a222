"""What came out of a comparison: for each task a figure, a table with the paired differences, and these in words."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from resync.papers.audit.effects import Effect, paired
from resync.papers.audit.in_words import effect_in_words
from resync.papers.comparison.declared import METRIC, paper_of
from resync.papers.comparison.tasks import TASKS, others_of
from resync.papers.paper import Suite
from resync.papers.paper.paper import Item
from resync.papers.plan.modelled import timed_on
from resync.papers.render import style
from resync.papers.render.columns import metric_table
from resync.papers.render.item import NONE, ItemData, Series, draw, write_table
from resync.papers.render.options import CostCurves
from resync.papers.render.table import Cell, Heading, Table
from resync.runs.metrics.registry import METRICS
from resync.runs.results.runs import state_of
from resync.runs.results.seed_values import SeedValues
from resync.runs.run import Run

_OWN = style.Style("#CC79A7", "X", style.DASHES[0])
_UNIT = METRICS[METRIC].unit
_INTERVAL = "difference: in brackets its 95 % interval (Student's t), each by itself; positive: the first is better"


@dataclass(frozen=True)
class Compared:
    """A task with the learning rates of the pilots, the series of the algorithm at the best, and those beside it."""

    task: str
    scale: str
    rates: tuple[float, ...]
    own: Series
    others: tuple[Series, ...]

    def difference(self, other: Series) -> Effect:
        """By how much the algorithm is better at common seeds, which share initial weights and batches.

        There is no interval at one seed, nor where a training diverged: what is left would flatter its algorithm.
        """
        ours, theirs = (
            {result.summary["seed"]: result.final(METRIC) for result in series.results("finished")}
            for series in (self.own, other)
        )
        differences = SeedValues.of(theirs[seed] - ours[seed] for seed in sorted(ours.keys() & theirs.keys()))
        is_whole = differences.n > 1 and not self.own.results("diverged") and not other.results("diverged")
        low, high = paired(differences).interval(0.95) if is_whole else (None, None)
        return Effect(self.own.label, other.label, differences.mean, low, high, n=(differences.n, differences.n))

    @property
    def lines(self) -> Iterator[str]:
        """The differences in words."""
        loss, rate = self.own.evidence(METRIC).text(), _peak(self.own.states[0].run)
        among = ", ".join(f"{tried:g}" for tried in self.rates)
        edge = "; the best may lie beyond them" if rate in (self.rates[0], self.rates[-1]) else ""
        yield f"{self.task}: {self.own.legend} ends with a validation loss of {loss}"
        yield f"  {'learning rate':<21}{rate:g}, the best of {among}{edge}"
        yield f"  {'those of the others':<21}{TASKS[self.task].rates}"
        for other in self.others:
            effect = self.difference(other)
            n = effect.n[0] if effect.n else 0
            what = f"{other.legend}: {effect_in_words(asdict(effect), _UNIT)}, n = {n}" if n else other.legend
            yield f"  {_verdict(effect, n):<21}{what}"

    def write(self, folder: Path) -> list[Path]:
        """Draw the figure and write the table; return what is to be looked at."""
        item = Item.model_construct(
            id=self.task, kind="cost_curves", title=f"{self.task}: {self.own.label} beside other algorithms",
            caption="", series=(), width=None, options=CostCurves(metric=METRIC),
        )  # fmt: skip
        data: ItemData[CostCurves] = ItemData(item, self.scale, (self.own, *self.others), (), ())
        figure, *_ = draw(data, folder / self.task)
        table, *_ = write_table(self._table(data), data.width, folder / f"{self.task}_differences")
        return [figure, table]

    def _table(self, data: ItemData) -> Table:
        """What all series reached and sent, with a column of differences after that of the losses."""
        table = metric_table(data, [METRIC, "volume_percent", "training_hours"])
        effects = [self.difference(other) for other in self.others]
        texts = [NONE, *(effect_in_words(asdict(effect), "") for effect in effects)]
        names = ("difference", "low", "high")
        numbers = [dict.fromkeys(names), *({name: asdict(effect)[name] for name in names} for effect in effects)]
        return replace(
            table,
            headings=(*table.headings[:2], Heading("Difference", _UNIT, numbers=False), *table.headings[2:]),
            rows=tuple((*row[:2], Cell(text), *row[2:]) for row, text in zip(table.rows, texts, strict=True)),
            records=tuple({**record, **number} for record, number in zip(table.records, numbers, strict=True)),
            note=f"{table.note} · {_INTERVAL} · learning rates of the others: {TASKS[self.task].rates}",
        )  # fmt: skip


def compared(suite: Suite, algorithm: str, scale: str, results: Sequence[Path]) -> Iterator[Compared]:
    """The tasks with the algorithm's runs in the first folder, and those beside them also in the others."""
    paper = suite.papers[paper_of(algorithm)]
    for task, others in others_of(suite, scale, results).items():
        groups = [[state_of(run, results[0]) for run in suite.runs(paper.id, scale, task)], *others]
        looks = style.distinct([_OWN, *style.styles_of(states[0].run for states in others)])
        timing, series = paper.timing_of(f"{task}_pilot"), []
        for states, look in zip(groups, looks, strict=True):
            run = states[0].run
            sizes = (state.result.summary.get("parameters") for state in states if state.result)
            size = (timing and timing.parameters) or next(filter(None, sizes), None)
            time = timed_on(suite, timing, run, run, size) if timing and size else None
            series.append(Series(run.label, look, tuple(states), time))
        rates = sorted({_peak(run) for run in suite.runs(paper.id, scale, f"{task}_pilot")})
        yield Compared(task, scale, tuple(rates), series[0], tuple(series[1:]))


def _verdict(effect: Effect, n: int) -> str:
    if effect.low is None or effect.high is None:
        return "no interval beside" if n else "no common seed with"
    if effect.low * effect.high <= 0:
        return "not told apart from"
    return "better than" if effect.low > 0 else "worse than"


def _peak(run: Run) -> float:
    return max(map(run.lr, range(run.total_steps)))

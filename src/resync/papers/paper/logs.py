"""Logs that others published of their runs, and the numbers that they published of them."""

from collections.abc import Iterator

from pydantic import Field

from resync.base.settings.base import (
    Check,
    Count,
    Id,
    Items,
    NonNegativeNumber,
    PositiveInt,
    PositiveNumber,
    Settings,
    Text,
    check_unique,
    wrong,
)
from resync.base.settings.errors import not_among
from resync.runs.metrics.registry import METRICS, ComparedMetric


class LogTable(Settings):
    """A table with the logs of many runs, which `resync import --format runs` reads."""

    id: Id = Field(description="name of the table within its paper")
    origin: Text = Field(description="where the logs were published, with the commit, and under which licence")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the table")
    group: Text = Field(description="column that names the group that a run belongs to")
    run: Items[Text] = Field(default=(), description="columns that tell the runs of a group apart; none: one run each")
    step: Text | None = Field(default=None, description="column with the step of a row; null: only last rows are used")
    value: Text = Field(description="column with the metric")


class LogGroup(Settings):
    """Runs of one setting, and the mean that was published of them."""

    id: Id = Field(description="name of the group within its paper")
    label: Text = Field(description="name of the group in the audit")
    table: Id = Field(description="table that has the runs")
    name: Text = Field(description="what the table's column `group` says of them")
    metric: ComparedMetric = Field(description="what was measured")
    step: Count | None = Field(default=None, description="step whose value counts; null: the last row of each run")
    mean: float = Field(description="the mean as published")
    std: NonNegativeNumber | None = Field(default=None, description="the sample standard deviation as published")
    n: PositiveInt = Field(description="the number of runs as published")
    source: Text = Field(description="where mean and n stand")

    def checks(self) -> Iterator[Check]:
        """Require a mean that the metric can have."""
        if not METRICS[self.metric].has(self.mean):
            yield wrong(
                "mean", f"{self.mean:g} {self.unit}", f"{METRICS[self.metric].allowed}, as {self.metric} can be"
            )

    @property
    def unit(self) -> str:
        """Unit of the metric."""
        return METRICS[self.metric].unit


class LogRule(Settings):
    """A benchmark's own rule: (than - better + slope * steps saved) / sqrt(1/n + 1/n') must be at least `least`."""

    slope: NonNegativeNumber = Field(description="fall of the metric per step, by which steps saved are priced")
    least: PositiveNumber = Field(description="smallest value with which the benchmark calls a result better")
    source: Text = Field(description="where the rule stands")


class LogComparison(Settings):
    """A statement that runs of one group are better than those of another: lower, at fewer steps if there is a rule."""

    id: Id = Field(description="name of the comparison within its paper")
    statement: Text = Field(description="the statement in one sentence")
    better: Id = Field(description="group with the lower values")
    than: Id = Field(description="group with the higher values")
    rule: LogRule | None = Field(default=None, description="rule of the benchmark; null: it has none")
    source: Text = Field(description="where the statement stands")


class LogsFile(Settings):
    """`logs.yaml`: published logs, from which the audit computes again what was published of them."""

    tables: Items[LogTable] = Field(default=(), description="tables of runs")
    groups: Items[LogGroup] = Field(default=(), description="runs of one setting, with their published mean")
    comparisons: Items[LogComparison] = Field(default=(), description="statements about two groups")

    def checks(self) -> Iterator[Check]:
        """Require names that are unique and exist, steps where they are counted, and steps to price for a rule."""
        for key in ("tables", "groups", "comparisons"):
            yield from check_unique(((key, index, "id"), entry.id) for index, entry in enumerate(getattr(self, key)))
        tables, groups = ({entry.id: entry for entry in listed} for listed in (self.tables, self.groups))
        for index, group in enumerate(self.groups):
            if group.table not in tables:
                yield ("groups", index, "table"), not_among(group.table, tables)
            elif group.step is not None and tables[group.table].step is None:
                yield wrong(("groups", index, "step"), group.step, f"null, as {group.table} has no steps")
        for index, comparison in enumerate(self.comparisons):
            for key in ("better", "than"):
                name = getattr(comparison, key)
                if name not in groups:
                    yield ("comparisons", index, key), not_among(name, groups)
                elif comparison.rule and groups[name].step is None:
                    yield wrong(("comparisons", index, "rule"), f"for {name} without a step", "with steps")

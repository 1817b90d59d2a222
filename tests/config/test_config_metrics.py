"""The registry of metrics: one name has one meaning."""

from typing import get_args

import pytest

from resync.runs.metrics import registry as metrics
from resync.runs.metrics.registry import AXES, METRICS, Metric, columns


def test_every_metric_is_documented():
    for name, metric in METRICS.items():
        assert metric.title, name
        assert metric.unit, name
        assert metric.meaning, name


def test_a_column_means_the_same_in_both_tables():
    """What counts since step 0 or since the row before has another name than what is of one step."""
    both = [METRICS[name] for name in columns("metrics") if name in columns("steps")]
    assert {metric.span for metric in both} == {"moment", "total"}
    assert {METRICS[name].span for name in columns("steps")} == {"moment", "total", "step"}
    assert "step" not in {METRICS[name].span for name in columns("metrics")}


def test_what_is_compared_has_a_direction_or_follows_from_the_configuration():
    for name in metrics.COMPARED:
        assert METRICS[name].better or name in (*metrics.EXACT, "tuned_lr"), name  # a record of a search has both
    assert set(metrics.BEST) <= set(metrics.COMPARED)


def test_every_metric_has_a_range_and_totals_are_finite():
    for name, metric in METRICS.items():
        assert metric.has(float("nan")), name
        assert metric.has(metric.least), name
        assert metric.least == float("-inf") or not metric.has(metric.least - 1), name
        assert metric.unit not in ("%", "BLEU") or metric.most == 100 or name == "volume_percent", name
        assert metric.has(float("inf")) is not metric.grows, name
    assert METRICS["val_top1"].has(100.00000000000014)  # a mean of percentages


def test_axes_are_columns_and_types_have_the_names():
    assert set(AXES) <= set(columns("metrics"))
    assert get_args(metrics.ComparedMetric) == metrics.COMPARED
    assert get_args(metrics.DrawnMetric) == metrics.DRAWN
    assert get_args(metrics.TabledMetric) == metrics.TABLED


@pytest.mark.parametrize(
    ("better", "values", "best"),
    [("higher", [1.0, 3.0, 2.0], 3.0), ("lower", [2.0, float("nan"), 1.0], 1.0), ("higher", [float("inf")], None)],
)
def test_the_best_value_is_finite_and_on_the_better_side(better, values, best):
    assert Metric("a", "1", "b", ("metrics",), better=better).best_of(values) == best

import math
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pandas as pd
import pytest
import synthetic
from synthetic import collected, edit

from resync.papers.paper import Suite
from resync.runs.metrics.registry import columns, required_columns
from resync.runs.results.collect import collect
from resync.runs.results.errors import MissingRun, ResultsError
from resync.runs.results.runs import read_run, state_of
from resync.runs.results.summary import digest
from resync.runs.results.tables import read_table
from resync.runs.run import Run


def test_reads_what_a_run_wrote(runs: list[Run], finished: Path):
    result = read_run(finished / runs[0].directory)
    assert list(result.metrics["step"]) == list(range(0, 661, 22))
    assert result.metrics["step"].dtype == "int64"
    assert math.isnan(result.metrics["train_loss"][0])
    assert result.final("val_top1") == result.metrics["val_top1"].iloc[-1]
    assert set(result.metrics) <= set(columns("metrics"))
    assert set(result.steps) <= set(columns("steps"))


def test_a_run_that_ends_before_its_first_sampled_step_has_no_steps(runs: list[Run], results: Path):
    (results / runs[0].directory / "steps.csv").write_text("")
    synthetic.reseal(results / runs[0].directory)
    result = read_run(results / runs[0].directory)
    assert result.steps.empty
    assert "step" not in set(collected(runs[:1], results)["record"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"val_top1": "100.5"}, r"metrics.csv:4: val_top1: found 100.5, allowed: 0 to 100"),
        ({"val_loss": "-0.5"}, r"metrics.csv:4: val_loss: found -0.5, allowed: a number >= 0"),
        ({"training_seconds": "inf"}, r"metrics.csv:4: training_seconds: found inf, allowed: a number >= 0"),
        ({"bytes_sent": "7"}, r"metrics.csv:4: bytes_sent: found 7 after a larger value, allowed: no less"),
    ],
)
def test_a_value_that_a_metric_cannot_have_is_damage(values: dict[str, str], message: str, tmp_path: Path):
    first = dict.fromkeys((*required_columns("metrics"), "val_loss", "val_top1"), "9")
    unknown = dict.fromkeys(values, "")
    rows = [first, first | {"step": "10"} | unknown, first | {"step": "11"} | values]
    content = "\n".join([",".join(first), *(",".join(row.values()) for row in rows), ""])
    (tmp_path / "metrics.csv").write_text(content)
    with pytest.raises(ResultsError, match=message):
        read_table(tmp_path / "metrics.csv", ("step",), {"sha256": {"metrics.csv": digest(content.encode())}})


def test_null_in_a_summary_is_nan(runs: list[Run], results: Path):
    synthetic.rewrite(results / runs[0].directory, final={"val_top1": None}, wire_bytes=None)
    assert math.isnan(read_run(results / runs[0].directory).final("val_top1"))
    table = collected(runs[:1], results).query("record == 'summary' and metric in ['val_top1', 'wire_bytes']")
    assert table["value"].isna().all()


def test_collected_table_is_long_and_tidy(suite: Suite, finished: Path):
    table = collected(suite.runs("toy", "smoke"), finished)
    assert list(table.columns) == [
        "paper", "scale", "experiment", "series", "label", "seed", "status", "config_hash",
        "record", "step", "epoch", "metric", "value",
    ]  # fmt: skip
    assert table["value"].dtype == "float64"
    assert table.attrs["missing"] == []
    assert set(table["record"]) == {"evaluation", "step", "summary"}
    last = table.query("record == 'evaluation' and metric == 'val_top1' and step == 660")
    summary = table.query("record == 'summary' and metric == 'val_top1'")
    assert list(last["value"]) == list(summary["value"])
    assert len(summary) == 12
    rounds = table.query("record == 'summary' and metric == 'rounds' and series == 'qsr'")["value"]
    assert list(rounds) == [129, 129, 129]


def test_nan_stays_nan_in_every_format(runs: list[Run], finished: Path, tmp_path: Path):
    found = collect(runs, finished, tmp_path / "deep" / "collected")
    binary, text = pd.read_parquet(found.parquet), pd.read_csv(found.csv)
    pd.testing.assert_frame_equal(binary, text, check_exact=True)
    for written in (binary, text):
        start = written.query("record == 'evaluation' and metric == 'train_loss' and step == 0")["value"]
        assert len(start) == 3
        assert start.isna().all()
    values = [read_run(finished / run.directory).metrics["val_top1"] for run in runs]
    shown = binary.query("record == 'evaluation' and metric == 'val_top1'")["value"]
    assert list(shown) == [value for column in values for value in column]


def test_collecting_twice_gives_the_same_bytes(runs: list[Run], finished: Path, tmp_path: Path):
    first, second = (collect(runs, finished, tmp_path / name) for name in "ab")
    assert first.parquet.read_bytes() == second.parquet.read_bytes()
    assert first.csv.read_bytes() == second.csv.read_bytes()


def test_missing_runs_are_reported_and_never_rows(runs: list[Run], results: Path):
    """Not even where there are no others: then the table is empty, with all columns."""
    (results / runs[1].directory / "summary.json").unlink()
    for folder in (runs[1].directory, "nowhere"):
        with pytest.raises(MissingRun, match=rf"{folder}/summary.json: missing, the run has not finished"):
            read_run(results / folder)
    table, nothing = collected(runs, results), collected(runs, results / "nowhere")
    assert set(table["seed"]) == {0, 2}
    (line,) = table.attrs["missing"]
    assert line.startswith("toy/vit/qsr/seed1 (smoke): ")
    assert nothing.empty
    assert list(nothing.columns) == list(table.columns)
    assert len(nothing.attrs["missing"]) == 3


def test_a_changed_configuration_makes_results_stale(runs: list[Run], results: Path):
    synthetic.rewrite(results / runs[0].directory, run="toy/vit/h4/seed0")
    assert state_of(runs[0], results).reason == "these are results of toy/vit/h4/seed0"
    synthetic.rewrite(results / runs[0].directory, config_hash="0" * 16, run=runs[0].id)
    edit(results / runs[1].directory / "run.yaml", "momentum: 0.9", "momentum: 0.8")
    assert "run.yaml has configuration" in state_of(runs[1], results).reason
    table = collected(runs, results)
    assert dict(zip(table["seed"], table["status"], strict=True)) == {0: "stale", 1: "stale", 2: "finished"}


def test_a_diverged_run_keeps_its_rows_and_its_status(suite: Suite, tmp_path: Path):
    run = suite.runs("toy", "smoke", "vit", "h4")[0]
    synthetic.write_run(run, tmp_path, diverged_at=300)
    table = collected([run], tmp_path)
    assert set(table["status"]) == {"diverged"}
    assert table.query("record == 'summary' and metric == 'val_top1'")["value"].isna().all()


def test_a_run_is_read_without_pandas(runs: list[Run], finished: Path, tmp_path: Path):
    """Whose calls take longer than all others: they are counted, not timed."""
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call" and "pandas" in frame.f_code.co_filename

    collect(runs[:1], finished, tmp_path / "first")  # it imports what it needs
    sys.setprofile(count)
    try:
        states = [state_of(run, finished) for run in runs]
        few = calls
        collect(runs * 40, finished, tmp_path / "collected")
    finally:
        sys.setprofile(None)
    assert [state.status for state in states] == ["finished"] * 3
    assert few == 0
    assert calls < 3 * 40  # some for every table that is written

from pathlib import Path

import pandas as pd
import pytest
import synthetic
from synthetic import collected, edit, put_log

from resync.archive.pack import pack
from resync.audit import audit
from resync.paper import Suite
from resync.render.item import load
from resync.results import wandb_log
from resync.results.runs import read_run, state_of
from resync.results.status import progress
from resync.results.wandb_log import WandbLogError, read_history
from resync.run import Run

_KNOWN: dict[bytes, tuple[list[dict], bool]] = {}


@pytest.fixture(autouse=True)
def _read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let wandb, whose command takes seconds, read each content once."""
    read = wandb_log.read_log

    def read_once(log: Path) -> tuple[list[dict], bool]:
        content = log.read_bytes()
        if content not in _KNOWN:
            _KNOWN[content] = read(log)
        return _KNOWN[content]

    monkeypatch.setattr(wandb_log, "read_log", read_once)


@pytest.fixture
def directory(runs: list[Run], results: Path) -> Path:
    """QSR's seed 0, whose log the fixture `logged` holds."""
    return results / runs[0].directory


def compare(directory: Path, resumed_from: tuple[int, ...] = ()) -> None:
    wandb_log.compare(directory, pd.read_csv(directory / "metrics.csv").to_dict("records"), resumed_from)


def difference(directory: Path) -> str:
    with pytest.raises(WandbLogError) as caught:
        compare(directory)
    assert "\n" not in str(caught.value)
    assert str(directory) in str(caught.value)
    return str(caught.value)


def test_the_log_that_wandb_wrote_agrees(directory: Path, logged: tuple[bytes, bytes]):
    put_log(directory, logged[0])
    compare(directory)
    history, complete = read_history(directory)
    assert complete
    assert len(history) == 31


def test_a_tampered_value_is_named_with_run_step_metric_and_both_values(directory: Path, logged):
    put_log(directory, logged[0])
    value = pd.read_csv(directory / "metrics.csv")["val_top1"][10]
    edit(directory / "metrics.csv", repr(float(value)), "99.5")
    message = difference(directory)
    assert f"step 220, val_top1: metrics.csv 99.5, wandb {float(value)!r}" in message


def test_nan_equals_nan_but_no_number(directory: Path, logged):
    put_log(directory, logged[0])
    edit(directory / "metrics.csv", ",nan,", ",2.5,")
    assert "step 0, train_loss: metrics.csv 2.5, wandb nan" in difference(directory)


def test_missing_and_extra_steps_are_differences(directory: Path, logged):
    log = put_log(directory, logged[1])
    assert "step 0 is only in metrics.csv" in difference(directory)
    log.write_bytes(logged[0])
    lines = (directory / "metrics.csv").read_text().splitlines(keepends=True)
    (directory / "metrics.csv").write_text("".join(lines[:3] + lines[4:]))
    assert "step 44 is only in wandb" in difference(directory)


def test_of_a_resumed_run_the_later_log_is_true(directory: Path, logged):
    """The first log ends in the middle of a record: its writer was killed before the run was continued."""
    put_log(directory, logged[0][: len(logged[0]) // 3])
    put_log(directory, logged[1], 1)
    assert not read_history(directory)[1]
    compare(directory, resumed_from=(330,))
    assert "is only in metrics.csv" in difference(directory)  # a run that says it was never resumed


def test_a_lost_log_is_a_difference(directory: Path):
    assert "no wandb log, although run.yaml asks for one" in difference(directory)


def test_a_run_is_damaged_without_the_log_that_it_wrote_or_with_one_that_says_otherwise(
    runs: list[Run], directory: Path, results: Path, logged: tuple[bytes, bytes]
):
    log = put_log(directory, logged[0])
    synthetic.reseal(directory)
    assert state_of(runs[0], results).status == "finished"
    log.write_bytes(logged[0] + bytes(8))
    assert state_of(runs[0], results).status == "finished"  # another file with the same numbers
    log.write_bytes(logged[1])
    state = state_of(runs[0], results)
    assert state.status == "damaged"
    assert "wandb and metrics.csv differ: step 0 is only in metrics.csv; without" in state.reason
    log.unlink()
    assert state_of(runs[0], results).reason == f"{log}: missing, although summary.json has its SHA-256"


@pytest.mark.parametrize("content", [b"", b"hello", b":W&B" + bytes(100)])
def test_a_file_that_is_no_log_is_a_difference(content: bytes, directory: Path):
    put_log(directory, content)
    difference(directory)


def test_the_log_is_the_source_of_a_run_whose_metrics_csv_is_lost(
    suite: Suite, runs: list[Run], directory: Path, results: Path, logged: tuple[bytes, bytes]
):
    """To the last bit, for every reader; what is damaged, or has no record, stays so."""
    log = put_log(directory, logged[0])
    synthetic.reseal(directory)
    written, table = read_run(directory), collected(runs, results)
    text = (directory / "metrics.csv").read_text()
    (directory / "metrics.csv").write_text(text[:-9])
    assert state_of(runs[0], results).status == "damaged"
    (directory / "metrics.csv").unlink()
    found = read_run(directory)
    assert found.from_wandb
    pd.testing.assert_frame_equal(found.metrics, written.metrics, check_like=True, check_exact=True)
    shown = progress(runs[0], results)
    assert (shown.status, shown.reason) == ("finished", "from wandb, since metrics.csv is missing")
    keys = ["seed", "record", "step", "metric", "value"]
    again = collected(runs, results)
    pd.testing.assert_frame_equal(*(each[keys].sort_values(keys, ignore_index=True) for each in (table, again)))
    [series] = [each for each in load(suite, "toy", "table1", "smoke", results).series if "QSR" in each.label]
    assert series.note == "1 of 3 from wandb"
    row = next(row for row in audit(suite, "smoke", results).rows if row.id == "qsr_top1")
    assert [run.get("from_wandb") for run in row.provenance["runs"]] == [True, None, None]
    packed = pack(suite, "smoke", [results], results.parent / "archive")
    assert packed.left_out == [f"{runs[0].id} (smoke): finished: from wandb, since metrics.csv is missing"]
    log.write_bytes(logged[1])
    assert state_of(runs[0], results).reason.startswith(f"{directory / 'metrics.csv'}: missing, and wandb/offline-run")


def test_a_lost_metrics_csv_needs_every_evaluation_in_the_log(
    runs: list[Run], directory: Path, results: Path, logged: tuple[bytes, bytes]
):
    """The writer of the first log was killed; the second job has repeated the steps since the checkpoint."""
    put_log(directory, logged[0][: len(logged[0]) // 3])
    put_log(directory, logged[1], 1)
    synthetic.reseal(directory)
    (directory / "metrics.csv").unlink()
    state = state_of(runs[0], results)
    assert (state.status, state.result) == ("damaged", None)
    assert "a log is incomplete, without the evaluation at step " in state.reason

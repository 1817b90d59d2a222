from pathlib import Path

import pandas as pd
import pytest
import synthetic
from synthetic import put_log

from resync.config import Run
from resync.results import wandb_log
from resync.results.runs import state_of
from resync.results.wandb_log import WandbLogError, read_history


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


def edit(directory: Path, old: str, new: str) -> None:
    text = (directory / "metrics.csv").read_text()
    assert old in text
    (directory / "metrics.csv").write_text(text.replace(old, new, 1))


def test_the_log_that_wandb_wrote_agrees(directory: Path, logged: tuple[bytes, bytes]):
    put_log(directory, logged[0])
    compare(directory)
    history = read_history(directory)
    assert history.complete
    assert len(history.rows) == 31


def test_a_tampered_value_is_named_with_run_step_metric_and_both_values(directory: Path, logged):
    put_log(directory, logged[0])
    value = pd.read_csv(directory / "metrics.csv")["val_top1"][10]
    edit(directory, repr(float(value)), "99.5")
    message = difference(directory)
    assert f"step 220, val_top1: metrics.csv 99.5, wandb {float(value)!r}" in message


def test_nan_equals_nan_but_no_number(directory: Path, logged):
    put_log(directory, logged[0])
    compare(directory)
    edit(directory, ",nan,", ",2.5,")
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
    assert not read_history(directory).complete
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

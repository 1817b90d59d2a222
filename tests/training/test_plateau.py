"""What the validation loss decides: cuts of the learning rate, and an early end on every process at once."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import run_processes
from runs import make_session, trained, trained_until

from resync.runs.metrics.evaluation import EarlyStopping, Plateau
from resync.runs.train.loop import train_to_end
from resync.runs.train.losses import ValidationWatch
from resync.runs.train.saving import resume

# So small a learning rate improves nothing by 1e-4, and nothing does by 100 nats: the first evaluation stays the best.
WATCHED: dict[str, Any] = {
    "epochs": 5,
    "schedule": {"name": "constant", "lr": 1e-6, "warmup_steps": 3},
    "plateau": {"factor": 0.5, "patience": 0},
    "early_stopping": {"patience": 2, "min_delta": 100},
    "sync": {"name": "local", "period": {"rule": "constant", "h": 4}},
}


def factors(watch: ValidationWatch, losses: list[float]) -> list[float]:
    found = []
    for loss in losses:
        watch.observe(loss)
        found.append(watch.lr_factor)
    return found


def test_the_lr_is_cut_after_more_evaluations_than_the_patience():
    watch = ValidationWatch(Plateau(factor=0.1, patience=2), None)
    assert factors(watch, [1.0, 0.9, 0.9, 0.95, 0.8]) == [1, 1, 1, 1, 1]
    assert factors(watch, [0.8, 0.8, 0.8, 0.8, 0.8, 0.8]) == pytest.approx([1, 1, 0.1, 0.1, 0.1, 0.01])


@pytest.mark.parametrize(
    ("losses", "stops"),
    [
        ([1.0, 1.1, 1.2, 1.3], [False, False, False, True]),
        ([1.0, 1.1, 1.2, 1.0, 1.1, 1.1, 1.1], [False] * 6 + [True]),
        ([float("nan")] * 3, [False, False, True]),
        ([1.0, float("nan"), 0.9, float("nan"), 1.0, 1.0], [False] * 5 + [True]),
    ],
)
def test_training_stops_at_the_evaluation_that_ends_the_patience(losses: list[float], stops: list[bool]):
    """Equality is an improvement, what is no number is none."""
    watch = ValidationWatch(None, EarlyStopping(patience=3))
    found = []
    for loss in losses:
        watch.observe(loss)
        found.append(watch.stop)
    assert found == stops


def test_a_watch_continues_from_its_state():
    settings = Plateau(factor=0.1, patience=1), EarlyStopping(patience=4)
    losses = [1.0, 1.1, 1.1, 1.1, 1.1]
    for middle in range(len(losses)):
        first, second, whole = ValidationWatch(*settings), ValidationWatch(*settings), ValidationWatch(*settings)
        factors(first, losses[:middle])
        second.load_state_dict(first.state_dict())
        assert factors(second, losses[middle:]) == factors(whole, losses)[middle:]
        assert second.stop
        assert whole.stop


def test_all_processes_cut_and_stop_together_and_a_continued_run_does_too(tmp_path: Path):
    alone = trained(0, 1, tmp_path / "alone", WATCHED)
    rows = alone["log"]["metrics.csv"]
    assert [row["epoch"] for row in rows] == [0, 1, 2, 3]
    assert [row["lr"] for row in rows[1:]] == pytest.approx([1e-6, 1e-6, 5e-7])
    two = run_processes(2, trained, tmp_path / "two", WATCHED)
    np.testing.assert_allclose(np.concatenate([part["rows"] for part in two]), alone["rows"], rtol=0, atol=1e-6)
    trained_until(0, 1, tmp_path / "parts", WATCHED, 5)
    assert np.array_equal(trained(0, 1, tmp_path / "parts", WATCHED)["rows"], alone["rows"])
    again = make_session(tmp_path / "parts", **WATCHED)
    resume(again)
    assert again.has_ended()
    train_to_end(again)
    assert again.sync.steps == 21

"""Runs with `elastic`: workers that leave and come back, in processes of their own and in one process."""

import csv
import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from launched import finish
from runs import every, make_run, make_session, outcome, sync, trained, trained_until

from resync.paper import load_suite
from resync.results.state import recorded
from resync.settings.errors import ConfigError
from resync.train.loop import train_to_end

CONFIGS = Path(__file__).parents[2] / "paper_configs"

METHODS: dict[str, dict[str, Any]] = {
    "allreduce": sync("allreduce"),
    "local": sync("local", period=every(5)),
    "slowmo": sync("slowmo", period=every(5), buffers="zero"),
    "diloco": sync("diloco", period=every(5)),
    "streaming_diloco": sync("streaming_diloco", period=10, fragments=2, delay=2),
    "sgp": sync("sgp", topology="random"),
    "dpsgd": sync("dpsgd", topology="undirected_ring"),
}
ELASTIC: dict[str, Any] = {"elastic": {}}
LONG = {"epochs": 6, "steps_per_epoch": 20}


def _away(*absences: list[int | None], **options: Any) -> dict[str, Any]:
    return {"elastic": {"away": list(absences), **options}}


def test_members_follow_from_the_steps_at_which_workers_are_away(tmp_path: Path):
    changes = METHODS["local"] | _away([1, 4, 6], [3, 8, None], min_workers=2)
    session = make_session(tmp_path, **changes)
    train_to_end(session)
    assert session.elastic
    assert session.elastic.account() == {
        # Rounds end after steps 5, 10 and 14: worker 1 is lost in the first, away in the second, back in the third.
        "members": [[0, [0, 1, 2, 3]], [0, [0, 2, 3]], [5, [0, 2]], [10, [0, 1, 2]]],
        "away": [[1, 1, 10], [3, 6, None]],
        # Batches of 16 to the takers of each round: 4 workers, 3, then 3; of the lost ones those of a whole round.
        "samples_given": 16 * (5 * 4 + 5 * 3 + 4 * 3),
        "samples_lost": 16 * (5 + 5),
    }
    rows = session.workers.rows.detach()[session.transport.present]  # type: ignore[attr-defined]
    assert (rows == rows[0]).all()
    assert outcome(session)["log"]["metrics.csv"][-1]["consensus_distance"] == 0


@pytest.mark.parametrize("method", METHODS)
def test_a_run_whose_workers_leave_continues_with_the_same_bits(method: str, tmp_path: Path):
    changes = METHODS[method] | _away([1, 4, 9], [2, 11, 12], min_workers=2)
    whole = trained(0, 1, tmp_path / "whole", changes)
    for stop in (5, 6):
        trained_until(0, 1, tmp_path / f"parts{stop}", changes, stop)
        parts = trained(0, 1, tmp_path / f"parts{stop}", changes)
        assert parts["resumed_from"] == [stop]
        assert np.array_equal(parts["rows"], whole["rows"])
        assert parts["bytes_sent"] == whole["bytes_sent"]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["local", "sgp", "streaming_diloco"])
def test_the_same_faults_in_processes_and_simulated(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torchft", reason="torchft is not installed: make trainers")
    from resync.train.replica import Replica

    killed, after_backward = tmp_path / "killed", Replica.after_backward

    def dies_once(self: Replica) -> None:
        if self.worker == 2 and self.session.sync.steps == 7 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if len(self.membership.members) < 4:
            time.sleep(0.1)  # so that it is back before the end
        after_backward(self)

    monkeypatch.setattr(Replica, "after_backward", dies_once)
    real, simulated = tmp_path / "real", tmp_path / "simulated"
    settings = LONG | METHODS[method]
    run = make_run(real, **settings, elastic={"timeout_seconds": 40}, processes=4)
    assert finish(real, "--max-restarts", "1") == 0, (real / "launch.log").read_text()
    members = json.loads((real / "summary.json").read_text())["elastic"]
    [[worker, _, back]] = members["away"]
    assert worker == 2
    assert back < run.total_steps
    make_run(simulated, **settings, **_away(*members["away"]))
    assert finish(simulated) == 0
    assert json.loads((simulated / "summary.json").read_text())["elastic"] == members
    for row, other in zip(_rows(real), _rows(simulated), strict=True):
        assert row == pytest.approx(other, rel=1e-4, abs=1e-6, nan_ok=True)


def _rows(folder: Path) -> list[dict[str, float]]:
    """The rows of metrics.csv but for seconds."""
    with (folder / "metrics.csv").open() as file:
        return [
            {name: float(value or "nan") for name, value in row.items() if "seconds" not in name}
            for row in csv.DictReader(file)
        ]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["diloco", "sgp"])
def test_workers_that_all_end_continue_from_a_checkpoint(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torchft", reason="torchft is not installed: make trainers")
    from resync.train.replica import Replica

    settings = LONG | METHODS[method] | {"elastic": {"timeout_seconds": 40, "min_workers": 4}, "processes": 4}
    # Without momentum, which each worker has of its own, and of which a checkpoint has that of one.
    settings |= {"checkpoint": {"every_rounds": 2}, "optimizer": {"name": "sgd", "momentum": 0}}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    make_run(whole, **settings)
    assert finish(whole) == 0, (whole / "launch.log").read_text()
    after_backward = Replica.after_backward

    def dies(self: Replica) -> None:
        if self.session.sync.steps == 33:
            os.kill(os.getpid(), signal.SIGKILL)
        after_backward(self)

    make_run(parts, **settings)
    with monkeypatch.context() as patch:
        patch.setattr(Replica, "after_backward", dies)
        assert finish(parts) == 1
    assert finish(parts) == 0, (parts / "launch.log").read_text()
    summary = json.loads((parts / "summary.json").read_text())
    [step] = summary["resumed_from"]  # the launcher may have ended the first member before it had written the last one
    assert step in ((10, 20, 30) if method == "diloco" else range(2, 33, 2))
    assert [job["first_step"] for job in summary["jobs"]] == [0, step]
    assert len(summary["elastic"]["members"][-1][1]) == 4
    if method == "diloco":  # with SGP all continue from one worker's parameters
        for row, other in zip(_rows(parts), _rows(whole), strict=True):
            for name in [name for name in row if not name.startswith("train_")]:  # of one worker before the checkpoint
                assert row[name] == pytest.approx(other[name], rel=1e-5, abs=1e-6, nan_ok=True), name


@pytest.mark.slow
def test_a_run_of_which_too_few_workers_are_left_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torchft", reason="torchft is not installed: make trainers")
    from resync.train.replica import Replica

    monkeypatch.setattr(Replica, "after_step", lambda self, lr: os.kill(os.getpid(), signal.SIGKILL))
    make_run(tmp_path, **METHODS["local"], elastic={}, processes=4)
    assert finish(tmp_path) == 1
    said = (tmp_path / "launch.log").read_text()
    assert "ended with exit code -9, stays away" in said
    assert "workers are left, allowed: at least 3" in said
    assert recorded(tmp_path).state == "failed"  # type: ignore[union-attr]


def test_published_values_and_claims_take_fixed_series_only(tmp_path: Path):
    configs = tmp_path / "configs"
    for folder in ("outer_optimizers", "scales"):
        shutil.copytree(CONFIGS / folder, configs / folder)
    claim = {
        "id": "elastic", "statement": "Nobody is missed.", "experiment": "lost_workers", "better": "local",
        "than": "all_stay", "metric": "val_top1", "direction": "higher", "at_least": -1, "scales": ["smoke"],
        "status": "ours", "source": "here",
    }  # fmt: skip
    file = configs / "outer_optimizers" / "claims.yaml"
    before = file.read_text()
    file.write_text(before + yaml.safe_dump([claim]))
    with pytest.raises(ConfigError, match=r"local is elastic at scale smoke, allowed: series of fixed workers"):
        load_suite(configs)
    file.write_text(before + yaml.safe_dump([claim | {"elastic": True}]))
    load_suite(configs)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (ELASTIC | sync("d2"), "elastic: found algorithm d2, allowed: allreduce, local"),
        (ELASTIC | {"processes": 2}, "processes: found 2 with elastic, allowed: 1 or workers = 4"),
        (ELASTIC | {"processes": 4, "log": {}}, "log: found wandb or tensorboard with elastic"),
        (ELASTIC | {"sampling": "with_replacement"}, "sampling: found with_replacement with elastic"),
        (_away([0, 2, 3]) | {"processes": 4}, "elastic.away: found 1 with 4 processes"),
        (_away([4, 2, 3]), "elastic.away[0]: found worker 4, allowed: less than workers = 4"),
        (_away([0, 3, 2]), "elastic.away[0]: found back after step 2, allowed: at least 3"),
        (_away([0, 3, None], min_workers=4), "elastic.away[0]: found 3 workers left in step 3"),
    ],
)
def test_what_members_cannot_do_alike_is_one_line(changes: dict[str, Any], expected: str, tmp_path: Path):
    with pytest.raises(ConfigError) as caught:
        make_run(tmp_path, **changes)
    [line] = caught.value.lines
    assert f": {expected}" in line

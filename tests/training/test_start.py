"""A run that starts from the averaged model of another one."""

import json
import re
from pathlib import Path

import pytest
import torch
from runs import make_run, make_session
from torch.nn.utils import parameters_to_vector

from resync import models
from resync.config import Run
from resync.settings.options import options_of
from resync.train import train

FIRST = "first/sgd/seed0"


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    """The folder of a paper with one finished run, and that run."""
    folder = tmp_path_factory.mktemp("paper")
    run = make_run(folder / "config", epochs=1, log={"every_steps": 5, "wandb": "disabled"})
    train(run, folder / FIRST)
    return folder, run


def second(folder: Path, **changes):
    """A session beside the finished run, in a folder of its own."""
    return make_session(folder / "small/one/seed3", start_from=FIRST, **changes)


def test_all_workers_start_from_the_average_of_the_run_before(paper):
    folder, run = paper
    session = second(folder, start_hash=run.hash)
    saved = torch.load(folder / FIRST / "model.pt", weights_only=True)
    expected = parameters_to_vector(saved.values())
    assert torch.equal(session.workers.rows.data, expected.expand(4, -1))


@pytest.mark.parametrize(
    ("summary", "changes", "expected"),
    [
        ({}, {"start_hash": "0" * 16}, "found results of the configuration"),
        ({"status": "diverged"}, {}, "found a run that ended as diverged, allowed: finished"),
        ({}, {"model": {"name": "mlp", "hidden": [8]}}, r"the model does not fit: .*size mismatch for 1\.weight"),
    ],
)
def test_a_start_that_does_not_fit_is_one_line(paper, summary, changes, expected):
    folder, run = paper
    file = folder / FIRST / "summary.json"
    content = file.read_text()
    file.write_text(json.dumps(json.loads(content) | summary))
    try:
        with pytest.raises(ValueError, match=rf"^test/small/one/seed3: start_from {FIRST}: {expected}[^\n]*$"):
            second(folder, **({"start_hash": run.hash} | changes))
    finally:
        file.write_text(content)


def test_a_start_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"start_from first/sgd/seed0: .*first/sgd/seed0/summary\.json does not exist"):
        second(tmp_path, start_hash="0" * 16)


def test_all_workers_start_from_a_published_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    options = {"depth": 8, "norm": "group"}
    monkeypatch.setenv("RESYNC_DATA", str(tmp_path))
    changes = {"model": {"name": "cifar_resnet", **options}, "start_checkpoint": "common.pt"}
    with pytest.raises(ValueError, match=r"common\.pt: no such file"):
        make_session(tmp_path / "small/one/seed3", **changes)
    net = models.build(options_of("models", "cifar_resnet")(**options), (1, 8, 8), 10, seed=1)
    torch.save(
        {re.sub(r"norm(\d)", r"bn\1", name): value for name, value in net.state_dict().items()}, tmp_path / "common.pt"
    )
    session = make_session(tmp_path / "small/one/seed3", **changes)
    assert torch.equal(session.workers.rows.data, parameters_to_vector(net.parameters()).expand(4, -1))

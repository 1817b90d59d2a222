"""A run that starts from the averaged model of another one."""

import json
import re
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from launched import metrics
from runs import make_run, make_session
from torch.nn.utils import parameters_to_vector

from resync.base.settings.options import options_of
from resync.papers.plan import cost
from resync.runs.exchanges import round_lengths
from resync.runs.results import wandb_log
from resync.runs.results.runs import read_run
from resync.runs.results.summary import DIGESTS, text_of
from resync.runs.run import Run
from resync.runs.train import checkpoint, train
from resync.runs.train.loop import train_to_end
from resync.runs.train.saving import resume
from resync.tasks import models

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


def test_the_guides_net_starts_from_the_weights_of_its_seed(tmp_path: Path):
    """Written out: four convolutions and two linear layers, drawn in their order."""
    torch.manual_seed(42)
    layers = [torch.nn.Conv2d(i, o, 3) for i, o in ((1, 64), (64, 128), (128, 256), (256, 512))]
    layers += [torch.nn.Linear(8192, 512), torch.nn.Linear(512, 10)]
    options = options_of("models", "mnist_cnn")()
    net = models.build(options, (1, 28, 28), 10, seed=42)
    found = [module for module in net if isinstance(module, torch.nn.Conv2d | torch.nn.Linear)]
    for layer, other in zip(layers, found, strict=True):
        assert torch.equal(layer.weight, other.weight)
        assert torch.equal(layer.bias, other.bias)


@pytest.mark.parametrize("seed", [3, 4])
def test_the_initial_weights_may_have_a_seed_of_their_own(seed: int, tmp_path: Path):
    session = make_session(tmp_path / f"small/one/seed{seed}", weights_seed=42)
    run = session.run
    expected = models.build(run.model, run.facts["input_shape"], run.facts["num_classes"], seed=42)
    assert torch.equal(session.workers.rows.data, parameters_to_vector(expected.parameters()).expand(4, -1))


def test_without_a_seed_the_start_is_the_run_with_the_same_seed(paper):
    folder, run = paper
    first = make_run(folder / "first/sgd/seed3", start_from="small/two@step8")
    assert first.start_directory == Path(first.scale, "test/small/two/seed3")
    assert first.start_folder(folder / "first/sgd/seed3") == folder / "small/two/seed3"
    with pytest.raises(ValueError, match=r"start_from first/sgd: .*first/sgd/seed3"):
        make_session(folder / "small/one/seed3", start_from="first/sgd", start_hash=run.hash)


def test_without_epochs_the_start_is_evaluated_and_nothing_is_trained(paper):
    folder, run = paper
    constant = {"name": "constant", "lr": 0.1}
    found = make_run(folder / "none", start_from=FIRST, start_hash=run.hash, epochs=0, schedule=constant)
    train(found, folder / "small/none/seed3")
    result = read_run(folder / "small/none/seed3")
    assert (result.summary["status"], result.summary["steps"], result.summary["rounds"]) == ("finished", 0, 0)
    assert len(result.metrics) == 1
    assert result.final("val_top1") == read_run(folder / FIRST).final("val_top1")
    before, after = (torch.load(folder / name / "model.pt") for name in (FIRST, "small/none/seed3"))
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert cost(found, 10).volume_percent == 0


@pytest.mark.parametrize(
    ("summary", "changes", "expected"),
    [
        ({}, {"start_hash": "0" * 16}, "found results of the configuration"),
        (
            {"archived": {"summary_sha256": "", "left_out": {"model.pt": "0"}}},
            {},
            r".*/seed0 is of an archive, which has no model\.pt",
        ),
        ({"status": "diverged"}, {}, "found a run that ended as diverged, allowed: finished"),
        ({}, {"model": {"name": "mlp", "hidden": [8]}}, r"the model does not fit: .*size mismatch for 1\.weight"),
    ],
)
def test_a_start_that_does_not_fit_is_one_line(paper, summary, changes, expected):
    folder, run = paper
    file = folder / FIRST / "summary.json"
    content = file.read_text()
    entries = json.loads(content)
    digests = {name: value for name, value in entries[DIGESTS].items() if name != file.name}
    file.write_text(text_of(entries | summary, digests))
    try:
        with pytest.raises(ValueError, match=rf"^test/small/one/seed3: start_from {FIRST}: {expected}[^\n]*$"):
            second(folder, **({"start_hash": run.hash} | changes))
    finally:
        file.write_text(content)


@pytest.mark.parametrize("name", ["summary.json", "model.pt"])
def test_a_start_that_was_changed_is_one_line(paper, name):
    folder, run = paper
    file = folder / FIRST / name
    content = file.read_bytes()
    file.write_bytes(content.replace(b"0", b"1"))
    try:
        with pytest.raises(ValueError, match=rf"^test/small/one/seed3: start_from {FIRST}: \S*{name}: [^\n]*SHA-256"):
            second(folder, start_hash=run.hash)
    finally:
        file.write_bytes(content)


def test_a_start_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"start_from first/sgd/seed0: .*first/sgd/seed0/summary\.json: missing"):
        second(tmp_path, start_hash="0" * 16)


CONSTANT = {
    "sync": {"name": "local", "period": {"rule": "constant", "h": 2}},
    "optimizer": {"name": "adamw", "weight_decay": 0.05},
}
AT_8 = "first/sgd/seed0@step8"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    """A finished run that has kept the checkpoint after step 8, within its second epoch."""
    folder = tmp_path_factory.mktemp("kept")
    changes = CONSTANT | {"checkpoint": {"keep": 1, "keep_epochs": [8 / 7]}}
    run = make_run(folder / "config", **changes | {"log": {"every_steps": 5, "wandb": "disabled"}})
    assert train(run, folder / FIRST)
    return folder, run


def test_a_run_starts_from_the_average_of_a_kept_checkpoint(kept):
    folder, run = kept
    session = make_session(folder / "small/one/seed3", start_from=AT_8, start_hash=run.hash)
    states = torch.load(folder / FIRST / "checkpoint/step0000000008/workers00000.pt", weights_only=True)["states"]
    mean = torch.stack([state["workers"]["rows"] for state in states]).mean(0)
    torch.testing.assert_close(session.workers.rows.data, mean.expand(4, -1))
    assert session.sync.steps == 0


def test_a_run_that_continues_the_same_training_ends_like_it(kept, tmp_path: Path):
    """The same settings from step 8 on: the same bits, counts and curves, in wandb too, and after an interruption."""
    folder, run = kept
    changes = CONSTANT | {"start_from": AT_8, "start_state": "all", "start_hash": run.hash}
    out = folder / "small/again/seed3"
    again = make_run(out, **changes | {"series": "again", "log": {"every_steps": 5, "wandb": "offline"}})
    assert train(again, out)
    ours, theirs = (json.loads((each / "summary.json").read_text()) for each in (out, folder / FIRST))
    for name in ("parameters_sha256", "steps", "rounds", "bytes_sent", "volume_percent", "final"):
        assert ours[name] == theirs[name], name
    assert ours["resumed_from"] == []
    assert metrics(out) == metrics(folder / FIRST)
    [log] = wandb_log.logs(out)
    assert [row["step"] for row in wandb_log.read_log(log)] == [int(row["step"]) for row in metrics(out)]
    (out / "summary.json").unlink()
    assert train(again, out)
    assert json.loads((out / "summary.json").read_text())["resumed_from"] == [14]


@pytest.mark.parametrize("start_from", [FIRST, AT_8])
def test_a_run_does_not_continue_when_the_run_that_it_starts_from_has_trained_again(kept, start_from, tmp_path: Path):
    folder, run = kept
    shutil.copytree(folder / "first", tmp_path / "first")
    out, changes = tmp_path / "small/one/seed3", {"start_from": start_from, "start_hash": run.hash}
    for _ in range(2):
        session = make_session(out, **CONSTANT | changes)
        resume(session)
        steps = session.sync.steps
        train_to_end(session)
    assert steps == 14
    shutil.rmtree(tmp_path / FIRST / "checkpoint")
    (tmp_path / FIRST / "summary.json").unlink()
    trained = make_run(tmp_path / "config", **CONSTANT | {"checkpoint": {"keep": 1, "keep_epochs": [8 / 7]}})
    with pytest.MonkeyPatch.context() as patch:  # as with another version of torch
        patch.setattr(Run, "lr", property(lambda run: lambda step: 0.01))
        assert train(trained, tmp_path / FIRST)
    session = make_session(out, **CONSTANT | changes)
    resume(session)
    assert session.sync.steps == 0


def test_another_period_from_a_step_on_is_that_of_two_phases(kept):
    """Constant H = 2 to step 8, then H = 3: as the rule of phases in one run."""
    folder, run = kept
    three = {"sync": {"name": "local", "period": {"rule": "constant", "h": 3}}}
    start = {"start_from": AT_8, "start_state": "all", "start_hash": run.hash}
    with pytest.MonkeyPatch.context() as patch:
        opened = Mock(wraps=checkpoint.open_regular)
        patch.setattr(checkpoint, "open_regular", opened)
        session = make_session(folder / "small/three/seed3", **CONSTANT | three | start)
        resume(session)
    read = [call.args[0].name for call in opened.call_args_list]
    assert sorted(read) == ["model.pt", "shared.pt", "workers00000.pt"]  # once each: they may be large
    train_to_end(session)
    phases = {"sync": {"name": "local", "period": {"rule": "phases", "phases": [[0, 2], [8 / 7, 3]]}}}
    whole = make_session(folder / "small/phases/seed3", **CONSTANT | phases)
    train_to_end(whole)
    assert torch.equal(session.workers.rows, whole.workers.rows)
    assert session.sync.rounds == whole.sync.rounds == 6
    declared = make_run(folder / "three", **CONSTANT | three | start).with_start(run)
    assert round_lengths(declared) == [2, 2, 2, 2, 3, 3]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"start_from": "first/sgd/seed0@step9"}, "step0000000009 does not exist"),
        ({"start_from": "first/sgd/seed0@step14"}, r"step0000000014 has no model\.pt; delete .* to train"),
        ({"start_hash": "0" * 16}, r"step0000000008: found the configuration .*, allowed: 0000000000000000"),
        ({"start_state": "all", "optimizer": {"name": "sgd"}, "start_hash": None}, "step0000000008: found the config"),
        ({"start_state": "all", "model": {"name": "mlp", "hidden": [8]}}, ".*must match.*"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_one_line(kept, changes, expected):
    folder, run = kept
    chosen = CONSTANT | {"start_from": AT_8, "start_hash": run.hash} | changes
    with pytest.raises(
        ValueError, match=rf"^test/small/one/seed3: start_from {chosen['start_from']}: .*{expected}[^\n]*$"
    ):
        resume(make_session(folder / "small/other/seed3", **chosen))


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

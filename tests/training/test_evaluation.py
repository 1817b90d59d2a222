"""What an evaluation measures, and when: against numpy, plain torch and recursions written out."""

from collections.abc import Iterator
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from runs import CNN_WITH_BATCH_NORM, LANGUAGE_MODEL, TRANSLATION, make_run, make_session, trained
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector

from resync.base.settings.errors import ConfigError
from resync.runs.metrics.registry import columns, required_columns, unmeasured
from resync.runs.run.evaluated import evaluation_steps
from resync.runs.train.evaluate import consensus
from resync.runs.train.label_noise import LabelNoise
from resync.runs.train.loop import batches, evaluate, train_step
from resync.runs.train.mixup import Mixup
from resync.runs.train.objective import Classification
from resync.runs.train.session import Session
from resync.workers.engine import clocks

OWN = {"also": "workers"}
PUSH_SUM = {"name": "sgp", "topology": "random", "peers": 2}


def after(folder: Path, steps: int = 6, **changes: Any) -> Session:
    """A session after some steps."""
    session = make_session(folder, **changes)
    for _, (inputs, targets) in zip(range(steps), batches(session), strict=False):
        train_step(session, inputs, targets)
    return session


def evaluated(session: Session) -> dict[str, float]:
    """The row of an evaluation."""
    evaluate(session)
    assert session.log
    return dict(session.log.rows["metrics.csv"][-1])


def forward(session: Session, row: np.ndarray, inputs: torch.Tensor) -> torch.Tensor:
    """The logits of the MLP of BASE with these parameters [P], written out."""
    w1, b1, w2, b2 = torch.from_numpy(row).split([16 * 64, 16, 10 * 16, 10])
    hidden = torch.relu(inputs.flatten(1) @ w1.view(16, 64).T + b1)
    return hidden @ w2.view(10, 16).T + b2


def among_five(logits: torch.Tensor, labels: torch.Tensor) -> float:
    """The percentage of labels among the five largest logits, from a sort."""
    order = np.argsort(-logits.numpy(), axis=1)
    return 100 * float((order[:, :5] == labels.numpy()[:, None]).any(1).mean())


def test_every_worker_is_scored_on_all_samples_with_its_own_debiased_parameters(tmp_path: Path):
    session = after(tmp_path, sync=PUSH_SUM, evaluation=OWN)
    weights = session.sync.weights.numpy().astype(np.float32)
    assert np.ptp(weights) > 0.01
    before = session.workers.rows.detach().clone()
    own = before.numpy()
    row = evaluated(session)
    assert torch.equal(session.workers.rows, before)
    assert all(model.training for model in session.workers.models)
    samples, labels = session.data.val_inputs, session.data.val_targets
    logits = [forward(session, each, samples) for each in own]
    losses = [F.cross_entropy(each, labels).item() for each in logits]
    top1 = [100 * (each.argmax(1) == labels).double().mean().item() for each in logits]
    top5 = [among_five(each, labels) for each in logits]
    for name, values in (("val_loss", losses), ("val_top1", top1), ("val_top5", top5)):
        found = [row[f"worker_{name}_{statistic}"] for statistic in ("mean", "min", "max")]
        assert found == pytest.approx([np.mean(values), min(values), max(values)], abs=1e-5)
    mean = (weights * own).mean(0)
    assert row["val_top5"] == pytest.approx(among_five(forward(session, mean, samples), labels))


def test_swa_is_the_mean_of_the_models_evaluated_from_its_epoch_on(tmp_path: Path):
    """Izmailov et al. 2018, with statistics of its own for BatchNorm; the model of epoch 1 does not count."""
    changes = CNN_WITH_BATCH_NORM | {"epochs": 4, "evaluation": {"bn_batches": 2, "swa_from": 2}}
    session, models, rows = make_session(tmp_path, **changes), [], []
    for _ in range(4):
        for inputs, targets in batches(session):
            train_step(session, inputs, targets)
        with consensus(session):
            models.append(session.workers.rows[0].clone())
        rows.append(evaluated(session))
    assert [isnan(row["swa_val_loss"]) for row in rows] == [True, False, False, False]
    assert rows[1]["swa_val_loss"] == rows[1]["val_loss"] != rows[2]["val_loss"]
    with consensus(session, torch.stack(models[1:]).mean(0)) as model:
        torch.testing.assert_close(parameters_to_vector(model.parameters()), torch.stack(models[1:]).mean(0))
        logits = model(session.data.val_inputs)
    labels = session.data.val_targets
    assert rows[3]["swa_val_loss"] == pytest.approx(F.cross_entropy(logits, labels).item(), abs=1e-5)
    assert rows[3]["swa_val_top1"] == pytest.approx(100 * (logits.argmax(1) == labels).double().mean().item())


def test_every_worker_keeps_its_own_running_statistics(tmp_path: Path):
    """The consensus model gets new BatchNorm statistics; a worker is scored with those that it has gathered."""
    session = after(tmp_path, **CNN_WITH_BATCH_NORM | {"sync": {"name": "sgp"}, "evaluation": {"bn_batches": 2} | OWN})
    buffers = [[buffer.clone() for buffer in model.buffers()] for model in session.workers.models]
    assert not torch.equal(buffers[0][0], buffers[1][0])
    losses = []
    for model in session.workers.models:
        model.eval()
        with torch.no_grad():
            losses.append(F.cross_entropy(model(session.data.val_inputs), session.data.val_targets).item())
        model.train()
    row = evaluated(session)
    assert row["worker_val_loss_mean"] == pytest.approx(np.mean(losses), abs=1e-5)
    assert row["worker_val_loss_max"] == pytest.approx(max(losses), abs=1e-5)
    for model, kept in zip(session.workers.models, buffers, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(model.buffers(), kept, strict=True))


def test_the_consensus_model_has_the_mean_statistics_of_its_own_batches(tmp_path: Path):
    """Gu et al. 2023: means of the batches' means and unbiased variances at the averaged parameters, layer by layer."""
    session = after(tmp_path, **CNN_WITH_BATCH_NORM | {"sync": {"name": "sgp"}, "evaluation": {"bn_batches": 3}})
    run, steps = session.run, session.sync.steps
    drawn = [session.data.statistics_batch(run.seed, steps, index, run.forward_batch_size)[0] for index in range(3)]
    with consensus(session) as model:
        np.testing.assert_allclose(
            model[0].weight.flatten().detach(), session.sync.own_rows().mean(0)[: model[0].weight.numel()], atol=1e-6
        )
        for layer in model:
            if isinstance(layer, torch.nn.BatchNorm2d):
                means = [maps.mean((0, 2, 3)) for maps in drawn]
                variances = [maps.transpose(0, 1).flatten(1).var(1) for maps in drawn]
                torch.testing.assert_close(layer.running_mean, torch.stack(means).mean(0), rtol=1e-4, atol=1e-5)
                torch.testing.assert_close(layer.running_var, torch.stack(variances).mean(0), rtol=1e-4, atol=1e-5)
                drawn = [F.batch_norm(maps, None, None, layer.weight, layer.bias, training=True) for maps in drawn]
            else:
                drawn = [layer(maps) for maps in drawn]


def test_a_single_worker_may_keep_its_own_statistics(tmp_path: Path):
    alone = {"sync": {"name": "allreduce"}, "processes": 1, "workers": 1, "evaluation": {"bn_batches": 0}}
    session = after(tmp_path, **CNN_WITH_BATCH_NORM | alone)
    own = [buffer.clone() for buffer in session.workers.models[0].buffers()]
    with consensus(session) as model:
        assert all(torch.equal(a, b) for a, b in zip(model.buffers(), own, strict=True))


def test_workers_are_scored_outside_the_training_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    session = after(tmp_path, evaluation=OWN)
    measured: list[str] = []
    measure = session.clocks.measure
    monkeypatch.setattr(session.clocks, "measure", lambda phase: measured.append(phase) or measure(phase))
    sent = session.transport.bytes_sent, session.transport.wire_bytes
    evaluate(session)
    assert measured == ["evaluation"]
    assert (session.transport.bytes_sent, session.transport.wire_bytes) == sent


@pytest.mark.parametrize(
    "sync",
    [{"name": "local", "period": {"rule": "constant", "h": 4}}, PUSH_SUM, {"name": "osgp"}, {"name": "adpsgd"}],
    ids=["local", "sgp", "osgp", "adpsgd"],
)
def test_the_consensus_distance_is_that_of_kong_et_al(tmp_path: Path, sync: dict[str, Any]):
    session = after(tmp_path, sync=sync)
    own = session.sync.own_rows().detach().numpy().astype(np.float64)
    with session.sync.consensus():
        mean = session.workers.rows[0].detach().numpy().astype(np.float64)
    expected = np.sqrt(np.mean(((own - mean) ** 2).sum(1)))
    assert expected > 1e-3
    assert evaluated(session)["consensus_distance"] == pytest.approx(expected, rel=1e-5)


def test_there_is_no_distance_after_an_average_and_none_of_one_worker(tmp_path: Path):
    averaged = after(tmp_path / "a", steps=4, sync={"name": "local", "period": {"rule": "constant", "h": 4}})
    assert evaluated(averaged)["consensus_distance"] == 0
    assert "consensus_distance" not in evaluated(after(tmp_path / "b", workers=1))


@pytest.mark.parametrize("micro_batch_size", [4, None])
def test_training_accuracies_are_those_of_the_batches_since_the_last_evaluation(tmp_path: Path, micro_batch_size):
    """At a learning rate of 0 every step sees the same model."""
    session = make_session(tmp_path, micro_batch_size=micro_batch_size, schedule={"name": "constant", "lr": 1e-30})
    hits: list[np.ndarray] = []
    for number, (inputs, targets) in enumerate(batches(session)):
        if number == 2:
            evaluate(session)
            hits.clear()
        logits = forward(session, session.workers.rows[0].detach().numpy(), inputs.flatten(0, 1))
        order = np.argsort(-logits.numpy(), axis=1)
        hits.append(order[:, :5] == targets.flatten().numpy()[:, None])
        train_step(session, inputs, targets)
    row, found = evaluated(session), np.concatenate(hits)
    assert len(found) == 5 * 64
    assert row["train_top1"] == pytest.approx(100 * found[:, 0].mean(), abs=1e-4)
    assert row["train_top5"] == pytest.approx(100 * found.any(1).mean(), abs=1e-4)
    evaluate(session)
    assert session.log
    assert np.isnan(session.log.rows["metrics.csv"][-1]["train_top1"])


def accuracies(objective, model, inputs, targets):
    """Top-1 and top-5 of a step."""
    return objective.training_means(objective.training_loss(model, inputs, targets)[1]).tolist()


def test_training_accuracy_is_against_the_labels_trained_on():
    """A model that knows the clean labels: noise costs accuracy, Mixup does not, as a sample keeps the larger share."""
    inputs = F.one_hot(torch.arange(10).repeat(100), 10).float()
    clean = torch.arange(10).repeat(100)
    objective, model = Classification(), torch.nn.Identity()
    _, noisy = LabelNoise(0.3, 10, seed=0)(inputs[None], clean[None], 0, 0)
    share = 100 * (noisy[0] == clean).double().mean().item()
    assert 65 < share < 75
    assert accuracies(objective, model, inputs, noisy[0])[0] == pytest.approx(share)
    mixed, shares = Mixup(0.5, 10, 1, seed=0)(inputs[None], clean[None], 0, 0)
    assert accuracies(objective, model, mixed[0], shares[0]) == pytest.approx([100, 100])


def test_fewer_than_five_classes_make_top_5_certain():
    logits, labels = torch.randn(8, 3), torch.randint(3, (8,))
    assert accuracies(Classification(), torch.nn.Identity(), logits, labels)[1] == 100


@pytest.mark.parametrize("clip_norm", [None, 0.01])
def test_norms_of_a_sampled_step(tmp_path: Path, clip_norm: float | None):
    """The gradient's before clipping, the parameters' after the step; every worker has its own with Local SGD."""
    changes = {"sync": {"name": "local", "period": {"rule": "constant", "h": 7}}, "clip_norm": clip_norm}
    session = make_session(tmp_path, log={"every_steps": 3, "wandb": "disabled"}, **changes)
    norms: list[float] = []
    gradients = session.engine.gradients

    def remembered(*batch: Any) -> torch.Tensor:
        losses = gradients(*batch)
        norms.append(np.linalg.norm(session.workers.grads.numpy(), axis=1).mean())
        return losses

    session.engine.gradients = remembered
    for _, batch in zip(range(3), batches(session), strict=False):
        train_step(session, *batch)
    assert session.log
    [row] = session.log.rows["steps.csv"]
    assert row["gradient_norm"] == pytest.approx(norms[2], rel=1e-5)
    lengths = np.linalg.norm(session.workers.rows.detach().numpy(), axis=1)
    assert row["parameter_norm"] == pytest.approx(lengths.mean(), rel=1e-5)
    assert "loss_scale" not in row


def test_the_smallest_loss_scale_is_logged_in_fp16(tmp_path: Path):
    session = make_session(tmp_path, precision="fp16")
    assert session.engine.loss_scales
    session.engine.loss_scales.scales[2] = 64.0
    for _, batch in zip(range(5), batches(session), strict=False):
        train_step(session, *batch)
    assert session.log
    assert session.log.rows["steps.csv"][0]["loss_scale"] == 64.0


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"workers": 1},
        CNN_WITH_BATCH_NORM,
        LANGUAGE_MODEL,
        TRANSLATION | {"evaluation": {"beam_search": {"beam_size": 1, "length_penalty": 0.6}, "also": "workers"}},
    ],
    ids=["classification", "one_worker", "own_models", "language_model", "translation"],
)
def test_a_run_measures_what_its_configuration_says(tmp_path: Path, changes: dict[str, Any]):
    session = make_session(tmp_path, **changes)
    evaluate(session)
    assert session.log
    not_always = set(columns("metrics")) - set(required_columns("metrics"))
    measured = {name for name in not_always if not unmeasured(session.run, name)}
    assert session.log.rows["metrics.csv"][0].keys() & not_always == measured


QSR = {"name": "local", "period": {"rule": "power", "alpha": 0.15, "power": 2, "h_base": 2}}
H3 = {"name": "local", "period": {"rule": "constant", "h": 3}}


@pytest.mark.parametrize(
    ("sync", "evaluation", "steps"),
    [
        (H3, {}, [7, 14, 21, 28]),
        (H3, {"at": "rounds"}, [6, 12, 21, 28]),  # the last average at or before 7, 14 and 21; the last round is cut
        (H3, {"at": "rounds", "every_epochs": 2}, [12, 28]),
        (H3, {"every_rounds": 4}, [12, 24, 28]),
        ({"name": "local", "period": {"rule": "constant", "h": 16}}, {"at": "rounds"}, [16, 28]),
        ({"name": "sgp"}, {"every_rounds": 10}, [10, 20, 28]),
    ],
)
def test_when_a_run_is_evaluated(tmp_path: Path, sync: dict[str, Any], evaluation: dict[str, Any], steps: list[int]):
    run = make_run(tmp_path, epochs=4, sync=sync, evaluation=evaluation)
    assert sorted(evaluation_steps(run)) == steps


def test_at_rounds_only_models_that_the_algorithm_makes_are_evaluated(tmp_path: Path):
    """With QSR the last average at or before every epoch's end, as in the original trainer."""
    changes = {"epochs": 6, "sync": QSR, "log": {"every_steps": 1, "wandb": "disabled"}}
    log = trained(0, 1, tmp_path, changes | {"evaluation": {"at": "rounds"}})["log"]
    ends = [row["step"] for before, row in zip([{"round": 0}, *log["steps.csv"]], log["steps.csv"], strict=False)
            if row["round"] > before["round"]]  # fmt: skip
    expected = sorted({max(end for end in ends if end <= epoch) for epoch in range(7, 43, 7)})
    assert [row["step"] for row in log["metrics.csv"]] == [0, *expected]
    assert expected != list(range(7, 43, 7))
    assert {row["consensus_distance"] for row in log["metrics.csv"]} == {0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"evaluation": {"every_rounds": 2, "every_epochs": 2}}, "evaluation.every_epochs: found 2 beside every_r"),
        ({"evaluation": {"every_rounds": 2, "at": "rounds"}}, "evaluation.at: found rounds beside every_rounds"),
        ({"evaluation": OWN, "workers": 1}, "evaluation.also: found workers with one worker, allowed: null"),
    ],
)
def test_settings_without_effect_are_errors(tmp_path: Path, changes: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        make_run(tmp_path, **changes)


def test_the_time_waiting_for_data_is_that_of_the_batch_of_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """By a clock that only moves while a batch is made: 2 s for the first, 4 for the second and so on."""
    now = 0.0
    monkeypatch.setattr(clocks, "perf_counter", lambda: now)
    session = make_session(tmp_path, log={"every_steps": 3, "wandb": "disabled"})
    given = session.data

    class Slow:
        def batches(self, *plan: Any) -> Iterator[Any]:
            nonlocal now
            for number, batch in enumerate(given.batches(*plan), start=1):
                now += 2 * number
                yield batch

    session.data = Slow()
    for batch in batches(session):
        train_step(session, *batch)
    assert session.log
    assert [row["step_data_seconds"] for row in session.log.rows["steps.csv"]] == [6, 12]
    assert session.clocks.seconds("data") == 2 * sum(range(1, 8))

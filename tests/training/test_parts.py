"""Workers, transport, data and the losses, each on its own."""

from math import nan

import numpy as np
import pytest
import torch
from torch import nn

from resync.runs.train.losses import Diverged, Losses
from resync.runs.train.objective import Classification
from resync.tasks import data
from resync.tasks.data.sampling import Sampler
from resync.workers.engine.attached_workers import AttachedWorkers
from resync.workers.engine.clocks import Clocks
from resync.workers.engine.engine import Engine, EngineParts, Measured
from resync.workers.engine.members import Members
from resync.workers.engine.transport import Transport
from resync.workers.engine.workers import Workers, alike, trainable
from resync.workers.sync.fields import field

CPU = torch.device("cpu")


class Tied(nn.Module):
    """A model with tied weights, a frozen parameter, and one that gets no gradient."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3, bias=False)
        self.second = nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
        self.unused = nn.Parameter(torch.full((2,), 7.0))

    def forward(self, x):
        return self.second(self.first(x)) * self.frozen


def squared(model, inputs, targets):
    return ((model(inputs) - targets) ** 2).mean()


def engine_of(workers: Workers) -> Engine:
    transport = Transport(Members(workers.num_local), Clocks(CPU))
    return Engine(EngineParts(transport, workers, torch.optim.SGD([workers.rows], lr=0.1), squared))


def test_parameters_and_gradients_are_views_into_rows():
    workers = Workers(Tied(), 2)
    assert workers.num_parameters == 9 + 2
    inputs = torch.randn(2, 5, 3)
    losses = engine_of(workers).gradients(inputs, torch.zeros(2, 5, 3)).losses
    for index, model in enumerate(workers.models):
        assert model.first.weight.data_ptr() == workers.rows[index, 2:].data_ptr() == model.second.weight.data_ptr()
        assert torch.equal(model.first.weight.grad.flatten(), workers.grads[index, 2:])
    assert losses.shape == (2,)
    assert torch.all(workers.grads[:, :2] == 0)
    reference = Tied()
    reference.first.weight.data = workers.models[1].first.weight.data.clone()
    squared(reference, inputs[1], torch.zeros(5, 3)).backward()
    assert torch.allclose(reference.first.weight.grad.flatten(), workers.grads[1, 2:])


@pytest.mark.parametrize(
    ("model", "found"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, dtype=torch.float64)), "torch.float32, torch.float64"),
        (nn.ReLU(), "none"),
    ],
)
def test_models_that_cannot_be_rows_are_refused(model: nn.Module, found: str):
    with pytest.raises(ValueError, match=f"share one dtype, found: {found}"):
        Workers(model, 1)


def test_a_field_of_an_optimizer_over_modules_is_one_row():
    """Also where a parameter has no gradient, and so no state: every worker sends as much as the others."""
    model = Tied()
    workers = AttachedWorkers(model, trainable(model))
    workers.bind()
    optimizer = torch.optim.SGD((each for each in model.parameters() if each.requires_grad), lr=0.1, momentum=0.9)
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    before = {each: dict(state) for each, state in optimizer.state.items()}
    momenta = [
        before.get(each, {}).get("momentum_buffer", torch.zeros_like(each))
        for each in optimizer.param_groups[0]["params"]
    ]
    marks = torch.tensor([each in before for each in optimizer.param_groups[0]["params"]], dtype=torch.float32)
    expected = torch.cat([*(each.detach().flatten() for each in momenta), marks]).clone()
    with field(workers, optimizer, "momentum_buffer") as values:
        assert torch.equal(values, expected.unsqueeze(0))
        assert values.shape == (1, workers.num_parameters + len(marks))
        values[:, : workers.num_parameters].mul_(2)
        expected[: workers.num_parameters].mul_(2)
    assert set(optimizer.state) == set(before)
    with field(workers, optimizer, "momentum_buffer") as values:
        assert torch.equal(values, expected.unsqueeze(0))


def test_a_field_that_no_parameter_of_a_row_has_is_zero_and_stays_away():
    model = nn.ParameterList([torch.ones(3), torch.ones(2).bfloat16()])
    rows = [AttachedWorkers(model, parameters) for parameters in alike(trainable(model))]
    groups = [{"params": [each], "momentum": momentum} for each, momentum in zip(model, (0.9, 0), strict=True)]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    for workers, length in zip(rows, (3, 2), strict=True):
        with field(workers, optimizer, "momentum_buffer") as values:
            assert torch.equal(values, torch.zeros(1, length + 1))
            values[0, :-1] = 1
    assert not optimizer.state
    with pytest.raises(ValueError, match="the optimizer has no state 'exp_avg', allowed: momentum_buffer"):
        field(rows[1], optimizer, "exp_avg").__enter__()


def test_workers_must_be_spread_evenly():
    with pytest.raises(ValueError, match="4 workers cannot be spread evenly over 3 processes"):
        Members(4, 1, 0, 3)


def sampler(**changes) -> Sampler:
    return Sampler(
        **{"num_samples": 103, "num_workers": 4, "local_batch": 5, "steps": 5, "seed": 1, "replacement": False}
        | changes
    )


def test_without_replacement_no_sample_comes_twice_in_an_epoch_over_all_workers():
    first, second = sampler().epoch(0), sampler().epoch(1)
    assert first.shape == (5, 4, 5)
    assert len(np.unique(first)) == first.size
    assert not np.array_equal(first, second)
    assert np.array_equal(first, sampler().epoch(0))


def test_with_replacement_workers_have_streams_of_their_own():
    few, many = sampler(replacement=True).epoch(2), sampler(replacement=True, num_workers=8).epoch(2)
    assert np.array_equal(few, many[:, :4])
    assert not np.array_equal(few[:, 0], few[:, 1])


def test_the_last_batch_of_an_epoch_is_completed_but_no_further_one():
    counts = np.bincount(sampler(steps=6).epoch(0).ravel())
    assert len(counts) == 103
    assert counts.min() == 1
    assert counts.sum() == 120
    with pytest.raises(ValueError, match=r"7 steps of 4 x 5 samples need 140 samples .* has 103"):
        sampler(steps=7).epoch(0)


def test_the_last_batch_of_an_epoch_may_be_smaller():
    digits = data.build("digits", {})
    plan = sampler(num_samples=digits.num_train, num_workers=3, local_batch=250, steps=2, last_batch=229)
    batches = list(digits.batches(plan, epoch=0, first_step=0, workers=slice(0, 3)))
    assert [(inputs.shape[:2], targets.shape) for inputs, targets in batches] == [((3, 250),) * 2, ((3, 229),) * 2]
    drawn = torch.cat([targets.flatten() for _, targets in batches])
    assert torch.equal(drawn.bincount(), digits.train_targets.bincount())  # every sample once
    [(_, rest)] = digits.batches(plan, epoch=0, first_step=1, workers=slice(0, 3))  # as a run that continues draws it
    assert torch.equal(rest, batches[1][1])


def test_digits_are_what_their_facts_say():
    digits = data.build("digits", {})
    assert digits.train_inputs.shape == (1437, 1, 8, 8)
    assert digits.val_inputs.shape == (360, 1, 8, 8)
    assert sorted(digits.train_targets.unique().tolist()) == list(range(10))
    assert abs(digits.train_inputs.mean()) < 1e-5
    assert digits.sha256 == "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"  # as scikit-learn has it
    classes = torch.cat([digits.val_targets, digits.train_targets]).bincount()
    assert classes.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    shares = [len(targets) for rank in range(7) for _, targets in digits.validation(rank, 7)]
    assert sum(shares) == 360


def test_losses_name_the_first_step_and_worker_that_diverged():
    losses, transport = Losses(3, CPU), Transport(Members(3), Clocks(CPU))
    losses.add(Measured(torch.tensor([1.0, 2.0, 3.0])), step=1)
    losses.check(transport)
    losses.add(Measured(torch.tensor([1.0, nan, 3.0])), step=2)
    losses.add(Measured(torch.tensor([torch.inf, nan, 3.0])), step=3)
    with pytest.raises(Diverged, match="not finite at step 2 on worker 1"):
        losses.check(transport)


def test_accuracies_of_many_steps_together_have_the_bits_of_each_by_itself():
    """Of two workers, with more steps than are added together, and fewer samples in some."""
    objective, each, transport = Classification(), Classification(passes=2), Transport(Members(2), Clocks(CPU))
    together, apart = (Losses(2, CPU, of.training_metrics, of.training_means) for of in (objective, each))
    for step in range(1, 150):
        logits, targets = torch.randn(2, 7 if step % 50 else 3, 6), torch.randint(6, (2, 7 if step % 50 else 3))
        for of, losses in ((objective, together), (each, apart)):
            losses.add(Measured(*of.training_losses(nn.Identity(), logits, targets)), step)
    means = together.take_means(transport)
    assert means == apart.take_means(transport)
    assert 0 < means["train_top1"] < means["train_top5"] < 100

"""The generated points, and the linear classifier that is trained on them."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from resync.base.settings.options import options_of
from resync.tasks import models
from resync.tasks.data import mixed_logits


@pytest.fixture(scope="module")
def drawn():
    return mixed_logits.build()


def test_the_points_are_those_of_the_recipe(drawn):
    """Sum, share of ones and smallest loss as another program found them for this draw."""
    points, labels = drawn.train_inputs.double().numpy(), drawn.train_targets.numpy()
    assert points.sum() == pytest.approx(-366.060633, abs=0.01)
    assert labels.mean() == pytest.approx(0.29682)
    inputs = np.hstack([points, np.ones((len(points), 1))])

    def loss_and_gradient(weights):
        logits = inputs @ weights
        loss = np.mean(np.logaddexp(0, logits) - labels * logits)
        return loss, inputs.T @ (1 / (1 + np.exp(-logits)) - labels) / len(labels)

    assert minimize(loss_and_gradient, np.zeros(26), jac=True).fun == pytest.approx(0.3812991924, abs=1e-6)


def test_two_classes_are_logistic_regression_at_twice_the_learning_rate(drawn):
    model = models.build(options_of("models", "linear")(), (25,), 2, seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    weights = np.zeros(26)
    for points, labels in zip(drawn.train_inputs[:60].split(6), drawn.train_targets[:60].split(6), strict=True):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(points), labels).backward()
        optimizer.step()
        inputs = np.hstack([points.numpy(), np.ones((6, 1))])
        weights -= 0.2 * inputs.T @ (1 / (1 + np.exp(-inputs @ weights)) - labels.numpy()) / 6
    rows = torch.hstack([model[1].weight, model[1].bias[:, None]]).detach().numpy()
    np.testing.assert_allclose(rows[1] - rows[0], weights, atol=1e-5)

"""Outer optimizers and what runs with them: equal to other forms, to torch's optimizers, and to each other."""

import numpy as np
import pytest
import torch

from resync.sync.outer import outer_step_

EXACT = {"rtol": 0, "atol": 1e-12}


def pseudo_gradients(rounds: int = 9, size: int = 5) -> torch.Tensor:
    """What some rounds have changed, [rounds, size]."""
    return torch.randn(rounds, size, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("nesterov", [False, True])
def test_the_outer_step_is_that_of_torch_also_on_a_part_of_the_parameters(nesterov):
    whole, buffer = torch.ones(2, 8, dtype=torch.float64), torch.zeros(2, 8, dtype=torch.float64)
    part = slice(2, 7)
    theirs = torch.nn.Parameter(whole[:, part].clone())
    outer = torch.optim.SGD([theirs], lr=0.7, momentum=0.9, nesterov=nesterov)
    for change in pseudo_gradients():
        theirs.grad = change.expand(2, 5).clone()
        outer.step()
        given = change.repeat(2, 1)
        outer_step_(whole[:, part], buffer[:, part], given, lr=0.7, momentum=0.9, nesterov=nesterov)
        np.testing.assert_allclose(whole[:, part], theirs.detach(), **EXACT)
    assert torch.equal(whole[:, [0, 1, 7]], torch.ones(2, 3, dtype=torch.float64))


def test_the_outer_step_is_the_one_of_muloco_and_textbook_nesterov():
    """u = m u + e D, x = x - m u - e D; and y = x - e D, x = y + m (y - the y before), from y = x_0."""
    lr, momentum = 0.7, 0.6
    x, buffer = torch.ones(5, dtype=torch.float64), torch.zeros(5, dtype=torch.float64)
    of_muloco, u = x.clone(), torch.zeros_like(x)
    of_books, before = x.clone(), x.clone()
    for change in pseudo_gradients():
        outer_step_(x, buffer, change.clone(), lr=lr, momentum=momentum, nesterov=True)
        u = momentum * u + lr * change
        of_muloco = of_muloco - momentum * u - lr * change
        y = of_books - lr * change
        of_books, before = y + momentum * (y - before), y
        np.testing.assert_allclose(of_muloco, x, **EXACT)
        np.testing.assert_allclose(of_books, x, **EXACT)

"""Outer optimizers and what runs with them: equal to other forms, to torch's optimizers, and to each other."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from quadratic import Point, Problem

import resync
from resync.base.settings.options import options_of
from resync.base.streams import stream
from resync.workers.formulas.periods import Phases, PowerRule
from resync.workers.sync.options.all_reduce import GPA
from resync.workers.sync.outer import outer_step_

CENTRES = np.array([[-1.5, 2.0], [-0.5, -2.0], [0.5, 2.0], [1.5, -2.0]])
START = [1.0, -1.0]
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


def both_stepped(one: Problem, other: Problem, steps: int = 11) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The rows of two problems after each step."""
    for _ in range(steps):
        one.step()
        other.step()
        yield one.rows, other.rows


@pytest.mark.parametrize("centres", [CENTRES[:1], np.repeat(CENTRES[:1], 4, axis=0)], ids=["one worker", "equal data"])
@pytest.mark.parametrize("nesterov", [False, True])
def test_diloco_on_one_worker_or_on_equal_data_is_snoo(centres, nesterov):
    outer = {"period": 3, "lr": 0.68, "momentum": 0.37, "nesterov": nesterov, "optimizer": torch.optim.AdamW}
    for ours, theirs in both_stepped(
        Problem("diloco", centres, START, **outer), Problem("snoo", centres, START, **outer)
    ):
        np.testing.assert_allclose(ours, theirs, **EXACT)


def test_snoo_is_its_recursion_on_the_mean_gradient():
    """Eleven steps with H = 4, so that the last round is a short one."""
    snoo = Problem("snoo", CENTRES, START, training={"total_steps": 11}, period=4)
    x = w = np.array(START)
    b = np.zeros(2)
    for step in range(1, 12):
        w = w - 0.1 * (w - CENTRES.mean(0))
        if step in (4, 8, 11):
            b = 0.37 * b + (x - w)
            x = w = x - 0.68 * ((x - w) + 0.37 * b)
        snoo.step()
        np.testing.assert_allclose(snoo.rows, np.tile(w, (4, 1)), **EXACT)
        np.testing.assert_allclose(snoo.consensus(), w, **EXACT)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_diloco_progress_is_diloco_where_all_rounds_are_equal(momentum):
    """With p = 1 bit for bit; with another p for all rounds, its momentum is m^p and its learning rate lr as it was."""
    outer = {"period": 4, "momentum": momentum, "settings": {"lr": 0.125}}
    equal = Problem("diloco_progress", CENTRES, START, reference=0.5, **outer)
    for ours, theirs in both_stepped(equal, Problem("diloco", CENTRES, START, **outer)):
        assert np.array_equal(ours, theirs)
    twice = Problem("diloco_progress", CENTRES, START, reference=0.25, **outer)
    for ours, theirs in both_stepped(twice, Problem("diloco", CENTRES, START, **outer | {"momentum": momentum**2})):
        np.testing.assert_allclose(ours, theirs, **EXACT)


def test_diloco_progress_is_its_recursion_where_rounds_differ():
    """A falling learning rate and rounds of growing length, as with QSR, and a round without progress."""
    period = Phases(phases=[(0, 2), (4, 3), (10, 2)])
    problem = Problem("diloco_progress", CENTRES, START, period=period, momentum=0.8, reference=0.3)
    x, b, w, progress = np.array(START), np.zeros(2), np.tile(START, (4, 1)), 0.0
    for step, lr in enumerate([0.1, 0.1, 0.08, 0.07, 0.05, 0.04, 0.03, 0.03, 0.02, 0.02, 0.0, 0.0, 0.1, 0.1], 1):
        problem.optimizer.param_groups[0]["lr"] = lr
        w, progress = w - lr * (w - CENTRES), progress + lr
        assert problem.step() == (step in (2, 4, 7, 10, 12, 14))
        if step in (2, 4, 7, 10, 14):
            p = progress / 0.3
            change = (x - w.mean(0)) / p
            b = 0.8**p * b + change
            x = x - 0.7 * p * (change + 0.8**p * b)
            w, progress = np.tile(x, (4, 1)), 0.0
        np.testing.assert_allclose(problem.rows, w, **EXACT)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_gpa_that_averages_nothing_is_its_inner_optimizer(optimizer):
    """And gradients that are taken at z are its own, whatever x averages."""
    inner = {"optimizer": optimizer, "settings": {"weight_decay": 0.0}}
    gpa = Problem("gpa", CENTRES, START, mu_x=0.0, mu_y=0.4, **inner)
    for ours, theirs in both_stepped(gpa, Problem("allreduce", CENTRES, START, **inner)):
        np.testing.assert_allclose(ours, theirs, **EXACT)
        np.testing.assert_allclose(gpa.consensus(), theirs[0], **EXACT)
    at_z = Problem("gpa", CENTRES, START, mu_y=1e-13, **inner)
    for ours, theirs in both_stepped(at_z, Problem("allreduce", CENTRES, START, **inner)):
        np.testing.assert_allclose(ours, theirs, **EXACT)


def test_gpa_is_its_three_sequences():
    """x, y and z of the paper with AdamW written out; evaluation and the workers' own models are at x."""
    adam = {"lr": 0.1, "betas": (0.8, 0.95), "weight_decay": 0.0}
    gpa = Problem("gpa", CENTRES, START, optimizer=torch.optim.AdamW, settings=adam, mu_x=0.9)
    x = y = z = np.array(START)
    first, second = np.zeros(2), np.zeros(2)
    for step in range(1, 12):
        np.testing.assert_allclose(gpa.rows, np.tile(y, (4, 1)), **EXACT)
        np.testing.assert_allclose(gpa.consensus(), x, **EXACT)
        np.testing.assert_allclose(gpa.sync.own_rows(), np.tile(x, (4, 1)), **EXACT)
        gradient = y - CENTRES.mean(0)
        first, second = 0.8 * first + 0.2 * gradient, 0.95 * second + 0.05 * gradient**2
        z = z - 0.1 * (first / (1 - 0.8**step)) / (np.sqrt(second / (1 - 0.95**step)) + 1e-8)
        x = 0.9 * x + 0.1 * z
        y = 0.7 * x + 0.3 * z
        gpa.step()
    gpa.sync.synchronise()
    np.testing.assert_allclose(gpa.rows, np.tile(x, (4, 1)), **EXACT)
    np.testing.assert_allclose(gpa.consensus(), x, **EXACT)


@pytest.mark.parametrize("attached", [False, True])
def test_gpa_decays_z_before_y_is_averaged_with_it(attached):
    """The recursion of the authors' gpa_adamw.py (facebookresearch/optimizers f6066066), which has y and z."""
    lr, decay, mu_x, mu_y = 0.1, 0.5, 0.9, 0.7
    settings = {"lr": lr, "betas": (0.0, 0.0), "weight_decay": decay, "eps": 0.5}
    if attached:
        model = Point(START)
        optimizer = torch.optim.Adam(model.parameters(), decoupled_weight_decay=True, **settings)
        sync = resync.attach(model, optimizer, resync.GPA(mu_x=mu_x))
    else:
        problem = Problem("gpa", CENTRES[:1], START, optimizer=torch.optim.AdamW, settings=settings, mu_x=mu_x)
    y = z = np.array(START)
    for _ in range(7):
        gradient = y - CENTRES[0]
        u = gradient / (np.abs(gradient) + 0.5)
        z = (1 - lr * decay) * z
        y = y + (1 - mu_x) * (z - y) + lr * (mu_y * mu_x - 1) * u
        z = z - lr * u
        if attached:
            optimizer.zero_grad()
            model(torch.tensor(CENTRES[0])).backward()
            optimizer.step()
            np.testing.assert_allclose(model.theta.detach(), y, **EXACT)
        else:
            problem.step()
            np.testing.assert_allclose(problem.rows[0], y, **EXACT)
    if attached:
        sync.finish()
        np.testing.assert_allclose(model.theta.detach(), (y - (1 - mu_y) * z) / mu_y, **EXACT)


def test_gpa_takes_the_decay_of_sgd_as_a_part_of_the_gradient():
    """As torch's SGD does, at z; there is no decay before y is averaged."""
    lr, decay, mu_x, mu_y = 0.1, 0.5, 0.9, 0.7
    problem = Problem("gpa", CENTRES[:1], START, settings={"lr": lr, "weight_decay": decay}, mu_x=mu_x, mu_y=mu_y)
    y = z = np.array(START)
    for _ in range(7):
        u = y - CENTRES[0] + decay * z
        y = y + (1 - mu_x) * (z - y) + lr * (mu_y * mu_x - 1) * u
        z = z - lr * u
        problem.step()
        np.testing.assert_allclose(problem.rows[0], y, **EXACT)


def test_gpa_has_the_weights_of_the_authors_table():
    table = {1: 0.9, 4: 0.974, 8: 0.9869, 16: 0.9934, 32: 0.9967, 64: 0.9984, 128: 0.9992}
    for h, mu_x in table.items():
        assert GPA(h=h).weight == pytest.approx(mu_x, abs=5e-5)
    assert GPA().weight == table[32]


@pytest.mark.parametrize("strength", [0.0, 0.8])
@pytest.mark.parametrize("start", [0, 3])
def test_palsgd_is_its_recursion(strength, start):
    """With momentum, which a pull leaves alone; with strength 0 it is DiLoCo with lr / (1 - p) in some of the steps."""
    chosen = {"probability": 0.4, "strength": strength, "start": start}
    settings, training = {"momentum": 0.5, "lr": 0.1}, {"seed": 5}
    problem = Problem("palsgd", CENTRES, START, settings=settings, training=training, period=4, **chosen)
    x, b = np.array(START), np.zeros(2)
    w, momentum, found = np.tile(START, (4, 1)), np.zeros((4, 2)), []
    for step in range(start + 16):
        gradients = w - CENTRES
        if step < start:
            momentum = 0.5 * momentum + gradients.mean(0)
            w = w - 0.1 * momentum
            x = w[0]
        else:
            draws = [stream(5, "pull", worker=r, epoch=step).random() for r in range(4)]
            pulled = np.array(draws)[:, None] < 0.4
            found.append(pulled[:, 0])
            momentum = np.where(pulled, momentum, 0.5 * momentum + gradients)
            w = np.where(pulled, w - 0.1 * strength / 0.4 * (w - x), w - 0.1 / 0.6 * momentum)
            if (step - start) % 4 == 3:
                change = x - w.mean(0)
                b = 0.9 * b + change
                x = x - 0.1 * (change + 0.9 * b)
                w = np.tile(x, (4, 1))
        problem.step()
        np.testing.assert_allclose(problem.rows, w, **EXACT)
    alike = {len(set(workers)) == 1 for workers in np.array(found).tolist()}
    assert alike == {True, False}
    assert 0.2 < np.mean(found) < 0.6


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("palsgd", {"period": PowerRule(alpha=1.0), "start": 1}, "start: found 1 with the period rule power, .*"),
        ("gpa", {"mu_x": 0.9, "h": 4}, "mu_x: found 0.9 beside h, allowed: one of the two"),
    ],
)
def test_options_that_contradict_each_other_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        options_of("sync", name)(**options)

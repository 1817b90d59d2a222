"""Schedules against the formulas of the papers, written out."""

import math
import pickle

import numpy as np
import pytest

from resync.formulas import schedules


def test_cosine_follows_the_formula_at_every_step():
    lr = schedules.cosine(max_lr=0.008, min_lr=1e-6, total_steps=100, warmup_steps=10)
    for t in range(10):
        assert lr(t) == 1e-6 + t * (0.008 - 1e-6) / 10
    for t in range(10, 100):
        assert lr(t) == 1e-6 + (0.008 - 1e-6) * (1 + math.cos(math.pi * ((t - 10) / 90))) / 2
    assert lr(10) == 0.008
    assert lr(100) == lr(150) == 1e-6


def test_cosine_step_is_the_cosine_rounded_to_powers_of_two():
    """Peak 0.8: the warm-up ends below 0.8, the next step jumps to 1, the last ones are at 2^-20 (min_lr 1e-6)."""
    smooth, lr = (make(0.8, 1e-6, 62_400, 1_560) for make in (schedules.cosine, schedules.cosine_step))
    assert [lr(t) for t in range(1_560)] == [smooth(t) for t in range(1_560)]
    assert lr(1_559) == pytest.approx(0.7995, abs=1e-4)
    assert lr(1_560) == 1.0
    assert lr(62_399) == 2.0**-20
    for t in range(1_560, 62_400, 97):
        assert math.log2(lr(t)) % 1 == 0
        assert abs(math.log2(lr(t) / smooth(t))) <= 0.5


def test_linear_falls_by_the_same_amount_every_step():
    lr = schedules.linear(max_lr=1.0, min_lr=0.2, total_steps=12, warmup_steps=4)
    assert [lr(t) for t in range(4)] == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert [lr(t) for t in (4, 6, 8, 12)] == pytest.approx([1.0, 0.8, 0.6, 0.2])


def test_inverse_sqrt_is_the_schedule_of_the_transformer():
    """Vaswani et al. 2017, equation 3, up to its constant: min(t^-0.5, t W^-1.5)."""
    lr = schedules.inverse_sqrt(max_lr=5e-4, total_steps=100_000, warmup_steps=4000)
    for t in (1, 2000, 3999, 4000, 4001, 16_000, 99_999):
        assert lr(t) == pytest.approx(5e-4 * 4000**0.5 * min(t**-0.5, t * 4000**-1.5), rel=1e-14)
    assert (lr(0), lr(4000), lr(16_000)) == (0.0, 5e-4, 2.5e-4)


def test_step_follows_the_schedule_of_sgp():
    """Target 3.2 at 32 nodes of 256 images, E = 157; warm-up over 5 epochs from the rate of 256 images."""
    epoch = 157
    decays = [(30 * epoch, 0.1), (60 * epoch, 0.1), (80 * epoch, 0.1)]
    lr = schedules.step(3.2, decays, 90 * epoch, warmup_steps=5 * epoch, warmup_start=0.1)
    for t in (0, 1, 400, 5 * epoch - 1):
        assert lr(t) == pytest.approx(0.1 + (3.2 - 0.1) * (t + 1) / (5 * epoch), rel=1e-15)
    assert lr(5 * epoch - 1) == pytest.approx(3.2) == lr(5 * epoch)
    assert [lr(e * epoch) for e in (29, 30, 60, 80, 89)] == pytest.approx([3.2, 0.32, 0.032, 0.0032, 0.0032])
    assert lr(30 * epoch - 1) == 3.2


def test_step_does_not_warm_up_towards_a_lower_target():
    assert schedules.step(0.05, [], 10, warmup_steps=5, warmup_start=0.1)(0) == 0.05


def test_constant_takes_the_same_warm_up():
    assert schedules.constant(0.3)(12345) == 0.3
    lr = schedules.constant(0.4, total_steps=10, warmup_steps=4)
    assert [lr(t) for t in range(6)] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4])


@pytest.mark.parametrize(
    "make",
    [
        lambda **warmup: schedules.constant(3.2, 20, 8, **warmup),
        lambda **warmup: schedules.step(3.2, [(12, 0.1)], 20, 8, **warmup),
        lambda **warmup: schedules.linear(3.2, 0, 20, 8, **warmup),
        lambda **warmup: schedules.cosine(3.2, 0, 20, 8, **warmup),
        lambda **warmup: schedules.cosine_step(3.2, 1e-6, 20, 8, **warmup),
        lambda **warmup: schedules.inverse_sqrt(3.2, 20, 8, **warmup),
    ],
    ids=["constant", "step", "linear", "cosine", "cosine_step", "inverse_sqrt"],
)
def test_every_schedule_has_both_forms_of_warm_up(make):
    """Local SGD's LinearLR and QSR's scheduler start at the start value itself, SGP's code is one step ahead."""
    behind, ahead = (make(warmup_start=0.1, warmup_ahead=value) for value in (False, True))
    assert [behind(t) for t in range(8)] == pytest.approx([0.1 + 3.1 * t / 8 for t in range(8)])
    assert [ahead(t) for t in range(8)] == pytest.approx([0.1 + 3.1 * (t + 1) / 8 for t in range(8)])
    assert [behind(t) for t in range(8, 20)] == [ahead(t) for t in range(8, 20)]


def test_staircase_is_that_of_sgp():
    """The original sets the learning rate in the iterations 0, 100, ... of each epoch of 157 iterations."""
    smooth = schedules.step(3.2, [(30 * 157, 0.1)], 90 * 157, warmup_steps=5 * 157, warmup_start=0.1)
    lr = schedules.staircase(smooth, 5 * 157, every=100, steps_per_epoch=157)
    for epoch in range(7):
        for i in range(157):
            set_at = 100 * (i // 100)
            expected = 0.1 + 3.1 * (157 * epoch + set_at + 1) / (5 * 157) if epoch < 5 else 3.2
            assert lr(157 * epoch + i) == pytest.approx(expected, rel=1e-12)


def test_staircase_of_whole_epochs_is_that_of_the_guide():
    """A multiplier of e / W in epoch e, so that the first epoch has none."""
    smooth = schedules.constant(0.1, 300, warmup_steps=10 * 15, warmup_ahead=False)
    lr = schedules.staircase(smooth, 10 * 15, every=15, steps_per_epoch=15)
    for epoch in range(15):
        assert [lr(15 * epoch + i) for i in range(15)] == pytest.approx(15 * [0.1 * min(epoch / 10, 1)])


@pytest.mark.parametrize(
    "lr",
    [
        schedules.staircase(schedules.constant(1, 10, 4), 4, 2, 5),
        schedules.constant(1, 10, 2),
        schedules.step(1, [(5, 0.1)], 10, 2),
        schedules.linear(1, 0, 10, 2),
        schedules.cosine(1, 0, 10, 2),
    ],
    ids=["staircase", "constant", "step", "linear", "cosine"],
)
def test_schedules_give_python_floats_and_can_be_pickled(lr):
    copy = pickle.loads(pickle.dumps(lr))
    for t in range(12):
        assert type(lr(t)) is float
        assert type(lr(np.int64(t))) is float
        assert copy(t) == lr(t)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: schedules.constant(0.0), "learning rate is 0.0"),
        (lambda: schedules.cosine_step(1.0, 0.0, 10), "expected min_lr > 0 and base > 1"),
        (lambda: schedules.cosine_step(1.0, 1e-6, 10, base=1.0), "expected min_lr > 0 and base > 1"),
        (lambda: schedules.cosine(0.1, 0.2, 10, 0), "min_lr is 0.2"),
        (lambda: schedules.cosine(0.1, 0.0, 0, 0), "total_steps is 0"),
        (lambda: schedules.linear(0.1, 0.0, 10, 10), "warmup_steps is 10, expected 0..9"),
        (lambda: schedules.linear(0.1, 0.0, 10, 2, warmup_start=-1), "warmup_start is -1"),
        (lambda: schedules.step(0.1, [(-1, 0.1)], 10), "expected a step >= 0"),
        (lambda: schedules.staircase(schedules.constant(0.1), 4, 0, 10), "every is 0 and steps_per_epoch is 10"),
    ],
)
def test_values_out_of_range_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()

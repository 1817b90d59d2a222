"""Schedules against the formulas of the papers, written out."""

import math
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from resync.base.settings.options import TrainingShape
from resync.workers.formulas.schedules import AnySchedule, Schedule

SCHEDULE = TypeAdapter(AnySchedule)


def schedule(name: str, total: int, warmup: int = 0, epoch: int = 1, **settings: Any) -> Schedule:
    """The learning rate of a training of `total` steps, in epochs of `epoch`."""
    declared = SCHEDULE.validate_python({"name": name} | settings | ({"warmup_steps": warmup} if warmup else {}))
    return declared.of(TrainingShape(1, total // epoch, epoch, total, warmup))


def test_cosine_follows_the_formula_at_every_step():
    lr = schedule("cosine", 100, 10, max_lr=0.008, min_lr=1e-6)
    for t in range(10):
        assert lr(t) == 1e-6 + t * (0.008 - 1e-6) / 10
    for t in range(10, 100):
        assert lr(t) == 1e-6 + (0.008 - 1e-6) * (1 + math.cos(math.pi * ((t - 10) / 90))) / 2
    assert lr(10) == 0.008
    assert lr(100) == lr(150) == 1e-6


def test_cosine_step_is_the_cosine_rounded_to_powers_of_two():
    """Peak 0.8: the warm-up ends below 0.8, the next step jumps to 1, the last ones are at 2^-20 (min_lr 1e-6)."""
    smooth = schedule("cosine", 62_400, 1_560, max_lr=0.8, min_lr=1e-6)
    lr = schedule("cosine_step", 62_400, 1_560, max_lr=0.8, min_lr=1e-6, base=2)
    assert [lr(t) for t in range(1_560)] == [smooth(t) for t in range(1_560)]
    assert lr(1_559) == pytest.approx(0.7995, abs=1e-4)
    assert lr(1_560) == 1.0
    assert lr(62_399) == 2.0**-20
    for t in range(1_560, 62_400, 97):
        assert math.log2(lr(t)) % 1 == 0
        assert abs(math.log2(lr(t) / smooth(t))) <= 0.5


def test_linear_falls_by_the_same_amount_every_step():
    lr = schedule("linear", 12, 4, max_lr=1.0, min_lr=0.2)
    assert [lr(t) for t in range(4)] == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert [lr(t) for t in (4, 6, 8, 12)] == pytest.approx([1.0, 0.8, 0.6, 0.2])


def test_inverse_sqrt_is_the_schedule_of_the_transformer():
    """Vaswani et al. 2017, equation 3, up to its constant: min(t^-0.5, t W^-1.5)."""
    lr = schedule("inverse_sqrt", 100_000, 4000, max_lr=5e-4)
    for t in (1, 2000, 3999, 4000, 4001, 16_000, 99_999):
        assert lr(t) == pytest.approx(5e-4 * 4000**0.5 * min(t**-0.5, t * 4000**-1.5), rel=1e-14)
    assert (lr(0), lr(4000), lr(16_000)) == (0.0, 5e-4, 2.5e-4)


def test_step_follows_the_schedule_of_sgp():
    """Target 3.2 at 32 nodes of 256 images, E = 157; warm-up over 5 epochs from the rate of 256 images."""
    epoch = 157
    decays = [(30, 0.1), (60, 0.1), (80, 0.1)]
    lr = schedule("step", 90 * epoch, 5 * epoch, epoch, max_lr=3.2, decays=decays, warmup_start=0.1)
    for t in (0, 1, 400, 5 * epoch - 1):
        assert lr(t) == pytest.approx(0.1 + (3.2 - 0.1) * (t + 1) / (5 * epoch), rel=1e-15)
    assert lr(5 * epoch - 1) == pytest.approx(3.2) == lr(5 * epoch)
    assert [lr(e * epoch) for e in (29, 30, 60, 80, 89)] == pytest.approx([3.2, 0.32, 0.032, 0.0032, 0.0032])
    assert lr(30 * epoch - 1) == 3.2


def test_step_does_not_warm_up_towards_a_lower_target():
    assert schedule("step", 10, 5, max_lr=0.05, decays=[(9, 0.1)], warmup_start=0.1)(0) == 0.05


def test_constant_takes_the_same_warm_up():
    assert schedule("constant", 1, lr=0.3)(12345) == 0.3
    lr = schedule("constant", 10, 4, lr=0.4)
    assert [lr(t) for t in range(6)] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4])


KINDS: dict[str, dict[str, Any]] = {
    "constant": {"lr": 3.2},
    "step": {"max_lr": 3.2, "decays": [(12, 0.1)]},
    "linear": {"max_lr": 3.2},
    "cosine": {"max_lr": 3.2},
    "cosine_step": {"base": 2, "max_lr": 3.2, "min_lr": 1e-6},
    "inverse_sqrt": {"max_lr": 3.2},
}


@pytest.mark.parametrize("name", KINDS)
def test_every_schedule_has_both_forms_of_warm_up(name: str):
    """Local SGD's LinearLR and QSR's scheduler start at the start value itself, SGP's code is one step ahead."""
    behind, ahead = (
        schedule(name, 20, 8, **KINDS[name], warmup_start=0.1, warmup_ahead=value) for value in (False, True)
    )
    assert [behind(t) for t in range(8)] == pytest.approx([0.1 + 3.1 * t / 8 for t in range(8)])
    assert [ahead(t) for t in range(8)] == pytest.approx([0.1 + 3.1 * (t + 1) / 8 for t in range(8)])
    assert [behind(t) for t in range(8, 20)] == [ahead(t) for t in range(8, 20)]
    assert {type(ahead(step)) for t in range(20) for step in (t, np.int64(t))} == {float}


def test_the_stairs_of_a_warm_up_are_those_of_sgp():
    """The original sets the learning rate in the iterations 0, 100, ... of each epoch of 157 iterations."""
    settings = {"max_lr": 3.2, "decays": [(30, 0.1)], "warmup_start": 0.1, "warmup_every": 100}
    lr = schedule("step", 90 * 157, 5 * 157, 157, **settings)
    for epoch in range(7):
        for i in range(157):
            set_at = 100 * (i // 100)
            expected = 0.1 + 3.1 * (157 * epoch + set_at + 1) / (5 * 157) if epoch < 5 else 3.2
            assert lr(157 * epoch + i) == pytest.approx(expected, rel=1e-12)


def test_the_stairs_of_whole_epochs_are_those_of_the_guide():
    """A multiplier of e / W in epoch e, so that the first epoch has none."""
    lr = schedule("constant", 300, 10 * 15, 15, lr=0.1, warmup_ahead=False, warmup_every="epoch")
    for epoch in range(15):
        assert [lr(15 * epoch + i) for i in range(15)] == pytest.approx(15 * [0.1 * min(epoch / 10, 1)])

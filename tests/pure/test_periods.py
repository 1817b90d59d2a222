"""Period rules: the golden rounds of the QSR fact sheet and the edges of the exact loop."""

import hashlib
import math
import time
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resync.base.settings.options import TrainingShape
from resync.workers.formulas.periods import Constant, Phases, PowerRule, round_length, rounds
from resync.workers.formulas.schedules import CosineSchedule, LinearSchedule, Schedule


def schedule(
    max_lr: float, min_lr: float, total: int, warmup: int, kind: type[CosineSchedule | LinearSchedule] = CosineSchedule
) -> Schedule:
    name = "cosine" if kind is CosineSchedule else "linear"
    declared = kind(name=name, max_lr=max_lr, min_lr=min_lr)
    return declared.of(TrainingShape(1, 1, total, total, warmup))


def constant(lr: float) -> Schedule:
    return lambda step: lr


@pytest.mark.parametrize(
    ("total_steps", "warmup_steps", "max_lr", "rule", "num_rounds", "percent", "longer", "last", "digest"),
    [
        pytest.param(
            93_600, 10_000, 0.008, PowerRule(alpha=0.0175, power=2, h_base=4),
            9_711, 10.375, (17_876, 5), [1612, 2769, 8142], "56f135ed3642",
            id="ViT-B",
        ),
        pytest.param(
            62_400, 1_560, 0.8, PowerRule(alpha=0.2, power=2, h_base=2),
            24_792, 39.731, (47_306, 3), [784, 2051, 829], "d62bcbf13151",
            id="ResNet-152",
        ),
    ],
)  # fmt: skip
def test_golden_rounds(total_steps, warmup_steps, max_lr, rule, num_rounds, percent, longer, last, digest):
    started = time.process_time()
    lengths = rounds(rule, schedule(max_lr, 1e-6, total_steps, warmup_steps), total_steps, warmup_steps)
    seconds = time.process_time() - started

    starts = [0, *accumulate(lengths)]
    first_longer = next((start, h) for start, h in zip(starts, lengths, strict=False) if h > rule.h_base)
    assert len(lengths) == num_rounds
    assert round(100 * len(lengths) / total_steps, 3) == percent
    assert first_longer == longer
    assert lengths[-3:] == last
    assert starts[-1] == total_steps
    assert hashlib.sha256(",".join(map(str, lengths)).encode()).hexdigest()[:12] == digest
    assert seconds < 1


def falling(step):
    return 1 / (1 + step)


@pytest.mark.parametrize(
    ("rule", "lr", "total_steps", "warmup_steps", "expected"),
    [
        (Constant(h=4), constant(0.1), 10, 0, [4, 4, 2]),
        # A round that starts in the warm-up may straddle its end; without h_warmup it has h_base.
        (PowerRule(alpha=1.0, power=1, h_base=1, h_warmup=4), constant(0.5), 12, 5, [4, 4, 2, 2]),
        (PowerRule(alpha=1.0, power=1, h_base=3), constant(0.1), 20, 6, [3, 3, 10, 4]),
        # A phase cuts the round before it; swap averages once at the end.
        (Phases(phases=[(0, 1), (4, 3)]), constant(0.1), 12, 0, [1, 1, 1, 1, 3, 3, 2]),
        (Phases(phases=[(0, 2), (4, "end")]), constant(0.1), 11, 0, [2, 2, 7]),
    ],
)
def test_rounds_of_each_rule(rule, lr, total_steps, warmup_steps, expected):
    assert rounds(rule, lr, total_steps, warmup_steps) == expected


@pytest.mark.parametrize(
    ("rule", "lr", "step", "warmup_steps", "h"),
    [
        # (0.5 / 0.2) ** power = 2.5, 6.25, 15.625, rounded down.
        *((PowerRule(alpha=0.5, power=power, h_base=1), 0.2, 0, 0, h) for power, h in ((1, 2), (2, 6), (3, 15))),
        # A vanishing learning rate makes one last round, and the warm-up does not look at it.
        *((PowerRule(alpha=0.5, power=2, h_base=1), lr, 90, 0, 10) for lr in (0.0, 1e-300)),
        (PowerRule(alpha=0.5, power=2, h_base=3), math.nan, 0, 1, 3),
        (Constant(h=4), 0.1, 100, 0, 1),
    ],
)
def test_the_length_of_one_round(rule, lr, step, warmup_steps, h):
    assert round_length(rule, lr, step, total_steps=100, warmup_steps=warmup_steps) == h


@pytest.mark.parametrize("lr", [-0.1, math.nan])
def test_an_impossible_learning_rate_is_an_error(lr):
    with pytest.raises(ValueError, match="learning rate of step 7"):
        round_length(PowerRule(alpha=0.5, power=2, h_base=3), lr, step=7, total_steps=9, warmup_steps=1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Constant(h=0), "^Constant: h: found 0, allowed: integer >= 1$"),
        (lambda: Constant(h=True), "h: found true, allowed: integer"),
        (lambda: PowerRule(alpha=0, power=2, h_base=1), "^PowerRule: alpha: found 0, allowed: number > 0$"),
        (lambda: PowerRule(alpha=0.1, power=-1, h_base=1), "power: found -1, allowed: number > 0$"),
        (lambda: PowerRule(alpha=0.1, h_bas=2), "^PowerRule: h_bas: unknown key, .*did you mean 'h_base'"),
        (lambda: PowerRule(), "^PowerRule: alpha: missing, allowed: number > 0$"),
        (lambda: PowerRule(alpha=0.1, h_base=1, h_warmup=0), "h_warmup: found 0, allowed: integer >= 1 or null$"),
    ],
)
def test_values_out_of_range_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@given(
    total_steps=st.integers(1, 400),
    warm=st.floats(0, 0.99),
    h_base=st.integers(1, 20),
    alpha=st.floats(1e-3, 10),
    power=st.sampled_from([1, 2, 3]),
    kind=st.sampled_from([LinearSchedule, CosineSchedule]),
)
def test_rounds_fill_the_training_and_h_never_shrinks_while_the_learning_rate_falls(
    total_steps, warm, h_base, alpha, power, kind
):
    warmup_steps = int(warm * total_steps)
    lengths = rounds(
        PowerRule(alpha=alpha, power=power, h_base=h_base),
        schedule(0.8, 0.0, total_steps, warmup_steps, kind),
        total_steps,
        warmup_steps,
    )
    assert sum(lengths) == total_steps
    assert all(h >= h_base for h in lengths[:-1])
    assert lengths[:-1] == sorted(lengths[:-1])


@pytest.mark.parametrize("first", [0, 3, 7, 11])
@pytest.mark.parametrize(
    "phases", [[(0, 1), (4, 3)], [(0, 3), (5, 2), (12, "end")], [(0, 2), (3, 5), (15, 4), (40, 2)]]
)
def test_rounds_of_phases_are_those_found_one_after_the_other(phases, first):
    rule, lr, step, lengths = Phases(phases=phases), schedule(0.5, 0.1, 20, 6), first, []
    while step < 20:
        lengths.append(round_length(rule, lr(step), step, 20, 6))
        step += lengths[-1]
    assert rounds(rule, lr, 20, 6, first) == lengths


@pytest.mark.parametrize(
    ("phases", "message"),
    [
        ([], "Phases: phases: found \\[\\], allowed: list of .* with at least 1"),
        ([(1, 1)], r"phases\[0\]\[0\]: found 1, allowed: 0, because the first phase starts with the training"),
        ([(0, 1), (0, 2)], r"phases\[1\]\[0\]: found 0, allowed: later than 0, the one before"),
        ([(0, "end"), (4, 2)], r"phases\[0\]\[1\]: found end, allowed: integer >= 1; only the last phase"),
        ([(0, 0)], r"phases\[0\]\[1\]: found 0, allowed: integer >= 1 or end"),
    ],
)
def test_phases_out_of_order_are_refused(phases, message):
    with pytest.raises(ValueError, match=message):
        Phases(phases=phases)


def test_a_round_without_an_end_is_refused():
    with pytest.raises(ValueError, match="has no end: give total_steps"):
        round_length(Phases(phases=[(0, "end")]), 0.1, 0, math.inf, 0)

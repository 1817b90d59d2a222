"""Costs from configurations, without training and without torch."""

import subprocess
import sys
from pathlib import Path

import pytest

from resync.config import Run, load_suite
from resync.periods import Constant, PowerRule
from resync.plan import Cost, cost, lr_of, period_of, table

VIT_PARAMETERS = 86_000_000


def a_run(**changes) -> Run:
    """A run on digits with the settings of the golden ViT-B case, but for the data."""
    settings = {
        "paper": "qsr",
        "experiment": "vit_b16_b4096",
        "series": "qsr_h4",
        "scale": "paper",
        "seed": 0,
        "data": {"name": "digits"},
        "model": {"name": "mlp"},
        "workers": 16,
        "batch_size": 256,
        "epochs": 300,
        "steps_per_epoch": 312,
        "optimizer": {"name": "adamw"},
        "schedule": {"name": "cosine", "max_lr": 0.008, "min_lr": 1e-6, "warmup_steps": 10_000},
        "sync": {"name": "local", "period": {"rule": "power", "alpha": 0.0175, "power": 2.0, "h_base": 4}},
    }
    return Run.model_validate({**settings, **changes})


def test_cost_of_the_golden_case():
    found = cost(a_run(), VIT_PARAMETERS)
    assert found == Cost(
        run="qsr/vit_b16_b4096/qsr_h4/seed0",
        steps=93_600,
        rounds=9_711,
        vectors=9_711,
        samples=93_600 * 256,
        parameters=VIT_PARAMETERS,
        workers=16,
    )
    assert found.volume_percent == 10.375
    assert found.bytes_per_worker == 9_711 * VIT_PARAMETERS * 4
    assert found.as_dict().items() >= {"volume_percent": 10.375, "rounds": 9_711}.items()


@pytest.mark.parametrize(
    ("sync", "rounds", "percent"),
    [
        ({"name": "allreduce"}, 93_600, 100),
        ({"name": "sgp"}, 93_600, 100),
        ({"name": "sgp", "peers": 2}, 93_600, 200),
        ({"name": "local", "period": {"rule": "constant", "h": 4}}, 23_400, 25),
    ],
)
def test_every_algorithm_costs_what_it_declares(sync, rounds, percent):
    found = cost(a_run(sync=sync), num_parameters=10)
    assert (found.rounds, found.volume_percent) == (rounds, percent)
    assert found.bytes_per_worker == percent * 93_600 // 100 * 40


def test_period_rules_keep_their_settings():
    power = {"rule": "power", "alpha": 0.5, "power": 3.0, "h_base": 2, "h_warmup": 8}
    assert period_of(a_run(sync={"name": "local", "period": power})) == PowerRule(0.5, 3.0, 2, 8)
    assert period_of(a_run(sync={"name": "local", "period": {"rule": "constant", "h": 7}})) == Constant(7)
    assert period_of(a_run(sync={"name": "allreduce"})) == Constant(1)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({"name": "constant", "lr": 0.3}, {0: 0.3, 999: 0.3}),
        ({"name": "constant", "lr": 0.4, "warmup_epochs": 5.0, "warmup_start": 0.2}, {0: 0.204, 49: 0.4, 999: 0.4}),
        (
            {"name": "step", "max_lr": 0.4, "decays": [[30.0, 0.1], [60.5, 0.5]], "warmup_epochs": 5.0},
            {0: 0.4 / 50, 49: 0.4, 299: 0.4, 300: 0.04, 604: 0.04, 605: 0.02},
        ),
        (
            {
                "name": "step",
                "max_lr": 0.4,
                "decays": [[30.0, 0.1]],
                "warmup_epochs": 5.0,
                "warmup_start": 0.1,
            },
            {0: 0.1 + 0.3 / 50, 49: 0.4},
        ),
        (
            {"name": "linear", "max_lr": 1.0, "min_lr": 0.1, "warmup_steps": 100},
            {0: 0.1, 50: 0.55, 100: 1.0, 550: 0.55},
        ),
        (
            {"name": "cosine", "max_lr": 1.0, "min_lr": 0.0, "warmup_steps": 100, "warmup_start": 0.5},
            {0: 0.5, 50: 0.75, 100: 1.0, 550: 0.5},
        ),
    ],
    ids=lambda value: value.get("name", ""),
)
def test_schedules_keep_their_settings(schedule, expected):
    lr = lr_of(a_run(schedule=schedule, epochs=100, steps_per_epoch=10))
    assert {step: lr(step) for step in expected} == pytest.approx(expected)


def test_table_has_an_aligned_line_for_each_run():
    costs = [cost(a_run(), VIT_PARAMETERS), cost(a_run(sync={"name": "allreduce"}, series="ar"), 10)]
    heading, first, second = table(costs).splitlines()
    assert heading.split() == ["run", "steps", "rounds", "volume", "%", "sent/worker", "samples"]
    assert first.split() == [costs[0].run, "93,600", "9,711", "10.375", "3.341", "TB", "23,961,600"]
    assert second.split() == [costs[1].run, "93,600", "93,600", "100.000", "3.744", "MB", "23,961,600"]
    assert len(heading) == len(first) == len(second)
    assert len(table([]).splitlines()) == 1


def test_planning_does_not_import_torch_or_numpy():
    code = "import sys, resync.plan; print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("experiment", "series", "percent"),
    [("vit_b16_b4096", "qsr_h4", 10.375), ("resnet152_b4096", "qsr_h2", 39.731), ("vit_b16_b4096", "h4", 25)],
)
def test_published_settings_of_qsr_have_their_volume(experiment, series, percent):
    suite = load_suite(Path(__file__).parents[2] / "paper_configs")
    runs = suite.runs("qsr", "paper", experiment=experiment, series=series)
    assert runs
    assert {round(cost(run, num_parameters=1).volume_percent, 3) for run in runs} == {percent}

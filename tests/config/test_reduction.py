"""Published experiments reduced to a small scale."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from resync.base.settings import units
from resync.base.settings.base import PACKAGE
from resync.base.settings.loader import parse
from resync.base.settings.options import TrainingShape
from resync.base.settings.problems import Collector
from resync.papers.paper.expand import expand
from resync.papers.paper.folder import read_scales
from resync.runs.run.reduction import conversion
from resync.workers.formulas.periods import Constant, Phases
from resync.workers.formulas.schedules import ConstantSchedule
from resync.workers.sync.options.gossip import SGP

VIT = "configs/qsr/experiments/vit.yaml"
SMOKE = """\
seeds: [0]
device: cpu
reduced:
  workers: 2
  most_workers: 8
  processes: 2
  epochs: 4
  steps_per_epoch: 5
  peak_lr: 0.4
  least_warmup_start: 0.25
  evaluation: {every_epochs: 1, bn_batches: 2}
  tasks:
    classification: {data: {name: toy}, local_batch_size: 2}
  models:
    net: {name: net, widths: [2]}
"""
PUBLISHED = """\
expect: QSR wins
base:
  data: {name: toy}
  model: {name: net, widths: [64, 64]}
  workers: 8
  batch_size: 64
  micro_batch_size: 1
  epochs: 40
  steps_per_epoch: 100
  optimizer: {name: sgd, momentum: 0.9}
  schedule: {name: cosine, max_lr: 0.8, min_lr: 1e-6, warmup_steps: 400}
  precision: fp16
  loss_scale: {initial: 8}
  processes: 8
  compile: default
series:
  qsr:
    label: QSR
    sync: {name: local, period: {rule: power, alpha: 0.2, h_base: 2}}
  short:
    label: Short
    sync: {name: local, period: {rule: constant, h: 4}}
  long:
    label: Long
    sync: {name: local, period: {rule: constant, h: 48}}
  once:
    label: Once
    sync: {name: local, period: {rule: constant, h: 4000}}
  phases:
    label: Phases
    schedule: {name: step, max_lr: 0.2, decays: [[20, 0.1]], warmup_epochs: 1, warmup_start: 0.01}
    sync: {name: local, period: {rule: phases, phases: [[0, 1], [20, 13], [30, end]]}}
scales:
  paper: {resources: {gpus_per_node: 8}}
"""


@pytest.fixture
def reduced(workspace):
    workspace.write("configs/scales/smoke.yaml", SMOKE)
    workspace.write(VIT, PUBLISHED)
    workspace.change("configs/qsr/paper.yaml", "[vit/qsr, vit/parallel]", "[vit/qsr, vit/long]")
    runs = workspace.load().runs("qsr", "smoke")
    return {run.series: run for run in runs}


def test_an_experiment_has_a_small_form_without_a_line_of_its_own(reduced):
    run = reduced["qsr"]
    assert (run.workers, run.batch_size, run.micro_batches, run.epochs, run.steps_per_epoch) == (2, 4, 2, 4, 5)
    assert (run.model.widths, run.device, run.precision, run.loss_scale) == ((2,), "cpu", "fp16", None)
    assert (run.processes, run.compile, run.resources.gpus_per_node, run.seed) == (1, None, 0, 0)


def test_learning_rates_and_alpha_shrink_together(reduced):
    run = reduced["qsr"]
    assert (run.schedule.max_lr, run.schedule.min_lr, run.sync.period.alpha) == (0.4, 5e-7, 0.1)
    assert reduced["phases"].schedule.max_lr == 0.1


def test_what_changes_keeps_its_place_in_the_training(reduced):
    assert reduced["qsr"].warmup_steps == 2
    run = reduced["phases"]
    assert run.schedule.decays == ((2, 0.1),)
    assert run.sync.period.phases == ((0, 1), (2, 4), (3, "end"))
    assert (run.warmup_steps, run.schedule.warmup_start) == (1, 0.025)


def test_periods_are_shortened_to_different_ones_so_that_there_are_several_rounds(reduced):
    assert reduced["qsr"].sync.period.h_base == 2
    assert [reduced[name].sync.period.h for name in ("short", "long", "once")] == [3, 5, 20]


def test_series_with_different_numbers_of_workers_keep_them_different(workspace):
    workspace.write("configs/scales/smoke.yaml", SMOKE)
    workspace.write(VIT, PUBLISHED)
    for series, workers in {"short": 16, "long": 2, "once": 1}.items():
        workspace.change(VIT, f"  {series}:\n", f"  {series}:\n    workers: {workers}\n    processes: 1\n")
    workspace.change("configs/qsr/paper.yaml", "[vit/qsr, vit/parallel]", "[vit/qsr, vit/long]")
    runs = {run.series: run for run in workspace.load().runs("qsr", "smoke")}
    assert [runs[name].workers for name in ("short", "qsr", "long", "once")] == [8, 4, 2, 1]


def test_a_form_of_its_own_takes_precedence(workspace):
    workspace.write("configs/scales/smoke.yaml", SMOKE)
    assert {run.epochs for run in workspace.load().runs("qsr", "smoke")} == {2}


def test_a_scale_without_reduction_has_only_what_declares_it(workspace):
    workspace.write("configs/scales/smoke.yaml", SMOKE[: SMOKE.index("reduced")])
    workspace.write(VIT, PUBLISHED)
    workspace.change("configs/qsr/paper.yaml", "[vit/qsr, vit/parallel]", "[vit/qsr, vit/long]")
    assert workspace.load().runs("qsr", "smoke") == []


def test_an_error_in_the_published_form_is_reported_once(workspace, lines_of):
    workspace.write("configs/scales/smoke.yaml", SMOKE)
    workspace.write(VIT, PUBLISHED.replace("workers: 8", "workers: eight"))
    workspace.change("configs/qsr/paper.yaml", "[vit/qsr, vit/parallel]", "[vit/qsr, vit/long]")
    assert len([line for line in lines_of(workspace.load) if "workers" in line]) == 1


CONSTANT = {"rule": "constant", "h": 48}
UNITS = {
    "outer learning rate": ({"name": "diloco", "period": CONSTANT}, {"lr": 0.7, "period": Constant(h=5)}),
    "fragments": (
        {"name": "streaming_diloco", "period": 102, "fragments": 3, "delay": 30},
        {"period": 6, "fragments": 3, "delay": 1},
    ),
    "moments": (
        {"name": "desloc", "period": 64, "second_moment_period": 2000},
        {"period": 5, "first_moment_period": None, "second_moment_period": 10},
    ),
    "smoothed period": ({"name": "gpa", "h": 4000}, {"h": 20}),
    "first local step": ({"name": "palsgd", "period": CONSTANT, "start": 10}, {"start": 1.0, "lr": 0.1}),
    "fewer workers": ({"name": "sgp", "topology": "directed_exponential", "peers": 4}, {"peers": 2}),
    "peers": ({"name": "sgp", "peers": [[0, 0], [20, 1]]}, {"peers": ((0, 0), (2, 1))}),
    "sum of learning rates": (
        {"name": "diloco_progress", "period": CONSTANT, "reference": 1.6},
        {"reference": 0.8, "lr": 0.7},
    ),
    "base": (
        {"name": "slowmo", "period": CONSTANT, "base": {"name": "sgp", "peers": [[0, 0], [20, 1]]}},
        {"alpha": 1.0, "base": SGP(peers=[(0, 0), (2, 1)])},
    ),
    "changes at the ends": (
        {"name": "local", "period": {"rule": "phases", "phases": [[0, 1], [1e-5, 2], [39.9999, 3], [39.99999, "end"]]}},
        {"period": Phases(phases=[(0, 1), (1e-4, 2), (3.9999, 3), (3.99995, "end")])},
    ),
}  # fmt: skip


def smoke_run(sync, schedule, **settings):
    """The form at scale smoke of 40 epochs of 100 steps that are valid at scale paper."""
    collector = Collector(PACKAGE)
    scales = read_scales(Path(__file__).parents[2] / "paper_configs/scales", collector)
    base = {
        "data": {"name": "digits"}, "model": {"name": "mlp"}, "workers": 16, "batch_size": 64, "epochs": 40,
        "steps_per_epoch": 100, "optimizer": {"name": "adamw"}, "schedule": schedule,
    } | settings  # fmt: skip
    experiment = {"expect": "?", "base": base, "series": {"one": {"label": "1", "sync": sync}}, "scales": {"paper": {}}}
    _, runs = expand("paper", "experiment", parse(json.dumps(experiment), "e.yaml"), scales, collector)
    collector.raise_if_any()
    return next(run for run in runs if run.scale == "smoke")


@pytest.mark.parametrize(("sync", "expected"), UNITS.values(), ids=UNITS)
def test_options_change_by_their_units_and_stay_valid(sync, expected):
    found = smoke_run(sync, {"name": "cosine", "max_lr": 0.8, "warmup_epochs": 1}).sync
    assert {name: getattr(found, name) for name in expected} == expected


def test_changes_at_the_ends_of_a_training_stay_inside():
    decays = [[1e-5, 0.5], [2e-5, 0.5], [39.9999, 0.5]]
    schedule = {"name": "step", "max_lr": 0.2, "decays": decays, "warmup_steps": 3999, "warmup_start": 0.1}
    found = smoke_run({"name": "allreduce"}, schedule)
    assert [epoch for epoch, _ in found.schedule.decays] == [1e-4, 2e-4, 3.9999]
    assert found.warmup_steps == 19 < found.total_steps
    assert (
        smoke_run({"name": "allreduce"}, schedule | {"warmup_steps": None, "warmup_epochs": 39.99}).warmup_steps == 19
    )


def test_an_evaluation_without_training_is_reduced_too():
    run = smoke_run(
        UNITS["outer learning rate"][0], {"name": "constant", "lr": 0.8}, epochs=0, start_from="e/one/seed0"
    )
    assert (run.epochs, run.schedule.lr) == (0, 0.4)


def test_every_unit_is_reduced():
    """So that a new unit cannot be forgotten."""
    every = [each for each in vars(units).values() if isinstance(each, units.Unit)]
    limits = SimpleNamespace(peak_lr=0.4, least_warmup_start=0.25)
    shape = TrainingShape(workers=1, epochs=90, steps_per_epoch=100, total_steps=9000, warmup_steps=0)
    run = SimpleNamespace(**shape._asdict(), shape=shape, sync=None, schedule=ConstantSchedule(name="constant", lr=0.8))
    small = TrainingShape(workers=1, epochs=4, steps_per_epoch=5, total_steps=20, warmup_steps=0)
    assert all(conversion(run, limits, small, 0.8)(unit, 90, ()) < 90 for unit in every)

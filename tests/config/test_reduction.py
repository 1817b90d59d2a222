"""Published experiments reduced to a small scale."""

from types import SimpleNamespace

import pytest

from resync.config.reduction import conversions
from resync.config.schema import schemas
from resync.formulas.declared_schedules import ConstantSchedule

VIT = "configs/qsr/experiments/vit.yaml"
SMOKE = """\
seeds: [0]
device: cpu
reduced:
  workers: 2
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
    assert (run.model.widths, run.device, run.precision, run.loss_scale) == ((2,), "cpu", "bf16", None)
    assert (run.processes, run.compile, run.resources.gpus_per_node, run.seed) == (1, None, 0, 0)


def test_learning_rates_and_alpha_shrink_together(reduced):
    run = reduced["qsr"]
    assert (run.schedule.max_lr, run.schedule.min_lr, run.sync.period.alpha) == (0.4, 5e-7, 0.1)
    assert reduced["phases"].schedule.max_lr == 0.2


def test_what_changes_keeps_its_place_in_the_training(reduced):
    assert reduced["qsr"].warmup_steps == 2
    run = reduced["phases"]
    assert run.schedule.decays == ((2, 0.1),)
    assert run.sync.period.phases == ((0, 1), (2, 5), (3, "end"))
    assert (run.warmup_steps, run.schedule.warmup_start) == (1, 0.05)


def test_a_period_is_kept_or_shortened_so_that_there_are_several_rounds(reduced):
    assert [reduced[name].sync.period.h for name in ("short", "long", "once")] == [4, 5, 20]


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


def options(schema):
    """The names and descriptions of all settings in a schema, at any depth."""
    if isinstance(schema, dict):
        for name, part in schema.get("properties", {}).items():
            yield name, part.get("description", "")
        schema = list(schema.values())
    for part in schema if isinstance(schema, list) else []:
        yield from options(part)


def test_every_setting_that_is_a_time_or_a_learning_rate_is_converted():
    """So that a new schedule or rule keeps its shape in a short training."""
    course = {"workers": 1, "epochs": 90, "steps_per_epoch": 100, "total_steps": 9000, "warmup_steps": 0}
    length = SimpleNamespace(**course, schedule=ConstantSchedule(name="constant", lr=0.1))
    limits = SimpleNamespace(epochs=4, steps_per_epoch=5, peak_lr=0.4)
    kept = {"every_epochs", "every_steps", "keep_epochs"}  # settings of the execution are the scale's own
    kept |= {"others_lr"}  # in units of the schedule, which is converted
    found = {
        name
        for name, text in options(schemas()["run.schema.json"])
        if "[epoch" in text or "[first epoch" in text or name == "lr" or name.endswith(("_epochs", "_steps", "_lr"))
        if not text.startswith("divide") and name not in kept
    }
    assert {"decays", "peers", "phases", "max_lr", "warmup_epochs"} <= found
    assert found <= set(conversions(length, limits))

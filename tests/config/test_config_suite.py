"""Expansion of a suite into runs, and what a run knows about itself."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from resync.base.settings.errors import ConfigError
from resync.base.settings.loader import dump
from resync.runs.run import Run
from resync.runs.run.run import REMOVED

VIT = "configs/qsr/experiments/vit.yaml"
RUN = """\
paper: qsr
experiment: vit
series: qsr
scale: smoke
seed: 1
data: {name: toy}
model:
  name: net
  widths: [4, 8]
  norm: group
workers: 4
batch_size: 8
sampling: without_replacement
epochs: 2
steps_per_epoch: 8
loss: {label_smoothing: 0.0}
optimizer: {name: sgd, momentum: 0.9, nesterov: true}
schedule: {name: cosine, max_lr: 0.8, warmup_epochs: 1.0, min_lr: 1.0e-06}
sync:
  name: local
  period: {rule: power, alpha: 0.1, power: 2.0, h_base: 2}
evaluation: {every_epochs: 1, bn_batches: 0}
precision: fp32
processes: 1
engine: {name: auto, zero_stage: 0}
checkpoint:
  every_minutes: 20.0
  keep: 2
  keep_epochs: []
log: {every_steps: 10, wandb: offline}
device: cpu
threads: 1
"""


def run_of(suite, scale="smoke", series="qsr", seed=1):
    return next(run for run in suite.runs("qsr", scale, experiment="vit", series=series) if run.seed == seed)


def test_run_yaml_holds_every_resolved_setting(workspace):
    assert run_of(workspace.load()).to_yaml() == RUN


def test_run_read_from_its_file_is_the_same_run(workspace):
    run = run_of(workspace.load())
    read = Run.from_file(workspace.write("run.yaml", run.to_yaml()), workspace.package)
    assert read.model_dump() == run.model_dump()
    assert (read.hash, read.id, read.to_yaml()) == (run.hash, run.id, run.to_yaml())


@pytest.mark.parametrize(("value", "allowed"), [("false", True), ("true", False)])
def test_a_setting_that_is_gone_may_stand_in_the_file_of_a_run_as_it_was_by_default(workspace, value, allowed):
    run = run_of(workspace.load())
    text = run.to_yaml().replace("checkpoint:\n", f"checkpoint:\n  keep_at_decays: {value}\n")
    file = workspace.write("run.yaml", text)
    if allowed:
        assert Run.from_file(file, workspace.package).hash == run.hash
    else:
        with pytest.raises(ConfigError, match="keep_at_decays: unknown key"):
            Run.from_file(file, workspace.package)


@pytest.mark.parametrize("group", ["sync", "optimizer", "model", "plateau"])
def test_an_option_that_is_gone_stays_in_the_hash_of_every_run_that_had_it(suite, group, tmp_path):
    """A run of each component, with the options in its file and without them, and with other values."""
    runs = [run for of_scale in suite.expanded.values() for run in of_scale]
    for component, removed in REMOVED[group].items():
        chosen = ((run, getattr(run, group)) for run in runs)
        run = next(run for run, given in chosen if given and getattr(given, "name", "") == component)
        content = yaml.safe_load(run.to_yaml())
        for settings, same in ((removed, True), (dict.fromkeys(removed, "another"), False)):
            (tmp_path / "run.yaml").write_text(dump(content | {group: content[group] | settings}))
            if same:
                assert Run.from_file(tmp_path / "run.yaml").hash == run.hash
            else:
                with pytest.raises(ConfigError, match="unknown key"):
                    Run.from_file(tmp_path / "run.yaml")


def test_run_file_is_validated_like_the_suite(workspace, lines_of):
    file = workspace.write("run.yaml", RUN.replace("h_base: 2", "h_base: 0").replace("seed: 1", "sed: 1"))
    lines = lines_of(lambda: Run.from_file(file, workspace.package))
    assert [line.split(", allowed")[0] for line in lines] == [
        "run.yaml:5: sed: unknown key",
        "run.yaml:21: sync.period.h_base: found 0",
    ]


def test_a_declared_schedule_is_that_of_its_function(workspace):
    """Two epochs of 8 steps: stairs of 3 steps from the start of each epoch, then a cosine."""
    changed = "{name: cosine, max_lr: 0.8, warmup_steps: 12, warmup_every: 3, warmup_ahead: true}"
    lines = [f"schedule: {changed}" if line.startswith("schedule") else line for line in RUN.splitlines()]
    lr = Run.from_file(workspace.write("run.yaml", "\n".join(lines)), workspace.package).lr
    assert [lr(step) for step in range(12)] == pytest.approx(
        [0.8 * (step + 1) / 12 for step in (0, 0, 0, 3, 3, 3, 6, 6, 8, 8, 8, 11)]
    )
    assert [lr(step) for step in (12, 14, 16)] == pytest.approx([0.8, 0.4, 0])


HASHES = {
    "comment": ("expect: QSR wins", "expect: QSR wins  # really", True),
    "claim": ("expect: QSR wins", "expect: QSR loses", True),
    "label": ("label: QSR", "label: Quadratic", True),
    "resources": ("epochs: 2", "epochs: 2\n    resources: {minutes: 1}", True),
    "other_seeds": ("epochs: 2", "epochs: 2\n    seeds: [1, 5]", True),
    "other_scale": ("processes: 2", "processes: 4", True),
    "spelling": ("batch_size: 8", "batch_size: +8", True),
    "default_made_explicit": ("workers: 4", "workers: 4\n  threads: 1", True),
    "setting": ("epochs: 2", "epochs: 3", False),
    "option": ("alpha: 0.1", "alpha: 0.11", False),
}
UNHASHED = {
    "log": "log: {every_steps: 1}",
    "checkpoint": "checkpoint: {keep: 5}",
    "processes": "processes: 4",
    "engine": "processes: 4\n  engine: {name: serial}",
    "threads": "threads: 3",
    "memory format": "memory_format: channels_last",
    "compile": "compile: default",
}


@pytest.mark.parametrize(("old", "new", "same"), HASHES.values(), ids=HASHES)
def test_hash_follows_the_content_of_run_yaml(workspace, old, new, same):
    before = run_of(workspace.load())
    workspace.change(VIT, old, new)
    after = run_of(workspace.load())
    assert (before.hash == after.hash) is same
    assert (before.to_yaml() == after.to_yaml()) is same


@pytest.mark.parametrize("setting", UNHASHED.values(), ids=UNHASHED)
def test_how_a_run_is_carried_out_is_in_its_file_and_not_in_its_hash(workspace, setting):
    before = run_of(workspace.load())
    workspace.change(VIT, "workers: 4", f"workers: 4\n  {setting}")
    workspace.change("configs/scales/smoke.yaml", "device: cpu", "device: auto")
    after = run_of(workspace.load())
    assert after.hash == before.hash
    assert after.to_yaml() != before.to_yaml()


def test_layers_are_merged_in_their_order(workspace):
    workspace.change("configs/scales/smoke.yaml", "device: cpu", "device: cpu\nthreads: 2\nsampling: with_replacement")
    workspace.change(VIT, "workers: 4", "workers: 4\n  threads: 1\n  sampling: without_replacement")
    workspace.change(VIT, "epochs: 2", "epochs: 2\n    threads: 3\n    log: {every_steps: 3}")
    workspace.change(VIT, "label: QSR", "label: QSR\n    log: {every_steps: 4}")
    workspace.change(VIT, "qsr: {sync", "qsr: {log: {wandb: disabled}, sync")
    smoke, paper = run_of(workspace.load()), run_of(workspace.load(), "paper", seed=7)
    assert (smoke.sampling, smoke.device, smoke.threads) == ("with_replacement", "cpu", 3)
    assert (smoke.log.every_steps, smoke.log.wandb) == (4, "disabled")
    assert (paper.device, paper.threads, paper.log.every_steps) == ("cuda", 1, 4)
    assert paper.sampling == "without_replacement"
    assert (smoke.sync.period.alpha, paper.sync.period.alpha) == (0.1, 0.2)


def test_another_name_or_rule_replaces_the_mapping(workspace):
    workspace.change(VIT, "qsr: {sync: {period: {alpha: 0.1}}}", "qsr: {sync: {period: {rule: constant, h: 3}}}")
    workspace.change(VIT, "epochs: 2", "epochs: 2\n    schedule: {name: constant, lr: 0.1}")
    run = run_of(workspace.load())
    assert run.sync.period.model_dump() == {"rule": "constant", "h": 3}
    assert run.schedule.model_dump(exclude_none=True) == {"name": "constant", "lr": 0.1}
    assert run.warmup_steps == 0


def test_runs_are_in_the_order_of_the_files(workspace):
    suite = workspace.load()
    found = [(run.scale, run.series, run.seed) for run in suite.runs("qsr", "smoke")]
    assert found == [
        ("smoke", "parallel", 0),
        ("smoke", "parallel", 1),
        ("smoke", "qsr", 0),
        ("smoke", "qsr", 1),
    ]
    assert [run.series for run in suite.runs("qsr", "paper")] == ["parallel", "h4", "qsr"]
    assert suite.runs("qsr", "mini") == []
    assert suite.scales == ("smoke", "mini", "gpu", "paper")


def test_resources_belong_to_a_run_but_not_to_its_file(workspace):
    suite = workspace.load()
    assert run_of(suite, "paper", seed=7).resources.nodes == 2
    assert run_of(suite).resources.nodes == 1
    assert "nodes" not in run_of(suite, "paper", seed=7).to_yaml()


def test_items_show_their_series_in_their_order(workspace):
    suite = workspace.load()
    assert [run.series for run in suite.item_runs("qsr", "fig1", "paper")] == ["qsr", "parallel"]
    assert [run.series for run in suite.item_runs("qsr", "table1", "paper")] == ["parallel", "h4", "qsr"]
    assert {run.series for run in suite.item_runs("qsr", "table1", "smoke")} == {"parallel", "qsr"}
    assert suite.items("qsr", "smoke") == ["fig1", "table1"]
    assert suite.papers["qsr"].items["fig1"].options.metric == "val_top1"


def test_an_item_exists_where_all_its_series_do(workspace):
    workspace.change("configs/qsr/paper.yaml", "[vit/qsr, vit/parallel]", "[vit/qsr, vit/h4]")
    suite = workspace.load()
    assert suite.item_runs("qsr", "fig1", "smoke") == []
    assert suite.items("qsr", "smoke") == ["table1"]
    assert suite.items("qsr", "paper") == ["fig1", "table1"]


def test_an_item_of_a_kind_without_series_exists_at_every_scale(workspace):
    table = "kind: curve\n    title: A table\n    series: [vit]\n    options: {metric: val_loss}"
    workspace.change("configs/qsr/paper.yaml", table, "kind: law\n    title: A table")
    suite = workspace.load()
    assert {scale: suite.items("qsr", scale) for scale in suite.scales} == {
        "smoke": ["fig1", "table1"],
        "mini": ["table1"],
        "gpu": ["table1"],
        "paper": ["fig1", "table1"],
    }
    assert suite.item_runs("qsr", "table1", "smoke") == []


QUESTIONS = [
    (lambda suite: suite.runs("qsrr", "smoke"), "paper: found 'qsrr', allowed: qsr; did you mean 'qsr'?"),
    (lambda suite: suite.runs("qsr", "smok"), "scale: found 'smok'"),
    (lambda suite: suite.runs("qsr", "smoke", experiment="vit_b"), "qsr: experiment: found 'vit_b'"),
    (lambda suite: suite.runs("qsr", "smoke", experiment="vit", series="h2"), "qsr/vit: series: found 'h2'"),
    (lambda suite: suite.item_runs("qsr", "fig9", "smoke"), "qsr: item: found 'fig9'"),
]


@pytest.mark.parametrize(("ask", "expected"), QUESTIONS)
def test_asking_for_an_unknown_name_is_one_line(workspace, lines_of, ask, expected):
    suite = workspace.load()
    [line] = lines_of(lambda: ask(suite))
    assert line.startswith(expected)


def test_reading_the_configuration_imports_nothing_heavy():
    heavy = ["torch", "pandas", "numpy", "snakemake", "matplotlib", "scipy", "wandb"]
    script = f"""
import sys
from pathlib import Path
from resync.papers.paper import load_suite, schema
load_suite(Path("paper_configs"))
schema.schemas()
print(*(name for name in {heavy} if name in sys.modules))
"""
    repository = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], cwd=repository, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


def test_an_experiment_names_its_blocks_and_where_its_rates_come_from(workspace):
    vit = "configs/qsr/experiments/vit.yaml"
    declared = "blocks: start\ntuned: {metric: val_top1, grid: {qsr: [vit/parallel]}}"
    workspace.change(vit, "\nbase:", f"\n{declared}\nbase:")
    found = workspace.load().papers["qsr"].experiments["vit"]
    assert (found.blocks, found.tuned.grid) == ("start", {"qsr": ("vit/parallel",)})


def test_runs_of_a_series_have_the_file_and_hash_of_runs_read_alone(suite, tmp_path):
    """They share what was computed for the first one, but not a setting that was changed since."""
    first, *_, last = suite.runs("qsr", "smoke", "vit_b16_b4096", "qsr_h4")
    changed = last.model_copy(update={"epochs": last.epochs + 1, "start_hash": "0" * 16, "gpus_per_worker": 2})
    for run in (first, last, changed):
        alone = Run.model_validate(run.model_dump())
        assert (run.to_yaml(), run.hash) == (alone.to_yaml(), alone.hash)
        (tmp_path / "run.yaml").write_text(run.to_yaml())
        assert Run.from_file(tmp_path / "run.yaml") == alone
    assert len({run.hash for run in (first, last, changed)}) == 3

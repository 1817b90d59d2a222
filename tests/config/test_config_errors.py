"""Wrong input by input: one line each, with file, line, key path, value found and values allowed."""

from dataclasses import replace

import pytest

from resync.base.settings import problems
from resync.base.settings.errors import ConfigError
from resync.base.settings.loader import load, parse
from resync.papers.paper import load_suite

VIT = "configs/qsr/experiments/vit.yaml"
PAPER = "configs/qsr/paper.yaml"
PUBLISHED = "configs/qsr/published.yaml"
CLAIMS = "configs/qsr/claims.yaml"
CLAIMS_TEXT = """\
- id: qsr_wins
  statement: QSR ends more accurate.
  experiment: vit
  better: qsr
  than: parallel
  metric: val_top1
  direction: higher
  at_least: 0.3
  scales: [smoke, paper]
  status: verified
  source: caption
- id: volumes
  statement: QSR sends least.
  experiment: vit
  order: [qsr, h4, parallel]
  metric: volume_percent
  direction: lower
  at_least: 5
  scales: [paper]
  status: derived
  source: schedule
"""
SMOKE = "configs/scales/smoke.yaml"

COSINE = "{name: cosine, max_lr: 0.8, min_lr: 1e-6, warmup_epochs: 1}"


WRONG = {
    VIT: [
        ("  epochs: 5", "  epoch: 5", "7: base.epoch: unknown key"),
        ("alpha: 0.2,", "alfa: 0.2,", "19: series.qsr.sync.period.alfa: unknown key"),
        ("sync: {name: allreduce}", "sync: {name: allreduce, peers: 1}", "13: series.parallel.sync.peers: unknown key"),
        ("workers: 4", "workers: 4\n  label: All", "6: base.label: unknown key"),
        ("  workers: 4\n", "", "2: base.workers: missing, allowed: integer >= 1"),
        ("    sync: {name: allreduce}\n", "", "11: series.parallel.sync: missing"),
        ("rule: constant, h: 4", "rule: constant", "16: series.h4.sync.period.h: missing"),
        ("expect: QSR wins\n", "", "1: expect: missing"),
        (
            "expect: QSR wins\n",
            "expect: QSR wins\nregime: {rates: tuned}\n",
            "2: regime.rates: found tuned without a grid, allowed: with tuned, which names it; shared; or compared",
        ),
        ("  h4:\n", "  H-4:\n", "14: series.H-4: found the key 'H-4'"),
        ("  paper:\n", "  papr:\n", "26: scales.papr: found the key 'papr'"),
        ("workers: 4", "workers: '4'", "5: base.workers: found '4'"),
        ("workers: 4", "workers: true", "5: base.workers: found true"),
        ("nesterov: true", "nesterov: yes", "8: base.optimizer.nesterov: found 'yes'"),
        ("epochs: 5", "epochs: 05", "7: base.epochs: found '05'"),
        ("h: 4", "h: 0", "16: series.h4.sync.period.h: found 0"),
        ("epochs: 2", "epochs: 0", "23: scales.smoke.epochs: found 0", "9: base.schedule.warmup_epochs: found 1"),
        ("momentum: 0.9", "momentum: 1", "8: base.optimizer.momentum: found 1, allowed: number >= 0 and < 1"),
        ("[4, 8]", "[4, 0]", "4: base.model.widths[1]: found 0"),
        ("[4, 8]", "[]", "4: base.model.widths: found [], allowed: list of integer >= 1 with at least 1"),
        ("rule: constant", "rule: const", "16: series.h4.sync.period.rule: found 'const'"),
        ("name: allreduce", "name: allreduc", "13: series.parallel.sync.name: found 'allreduc'"),
        ("name: net, ", "", "4: base.model.name: missing"),
        ("name: toy", "name: 3", "3: base.data.name: found 3"),
        ("      qsr: {sync: {period: {alpha: 0.1}}}", "      h4: {epochs: 3}", "25: scales.smoke.series.h4: has no "),
        ("[parallel, qsr]", "[paralel, qsr]", "22: scales.smoke.series_only[0]: found 'paralel'"),
        ("processes: 2", "processes: 3", "27: scales.paper.processes: found 3",
         "28: scales.paper.resources.nodes: found 2"),
        ("batch_size: 8", "batch_size: 10", "6: base.batch_size: found 10"),
        ("batch_size: 8", "batch_size: 8\n  micro_batch_size: 3", "7: base.micro_batch_size: found 3"),
        ("batch_size: 8", "batch_size: 8\n  last_batch: smaller", "7: base.last_batch: found smaller"),
        ("epochs: 5", "epochs: 5\n  loss_scale: {retries: 3}", "8: base.loss_scale: found with precision fp32"),
        ("epochs: 5", "epochs: 5\n  plateau: {factor: 0.5}", "8: base.plateau: found with the period rule power"),
        ("epochs: 5", "epochs: 5\n  start_from: vit/qsr/seed0\n  start_checkpoint: common.pt",
         "9: base.start_checkpoint: found beside start_from vit/qsr/seed0"),
        ("epochs: 5", "epochs: 5\n  weights_seed: 42\n  start_from: vit/qsr/seed0",
         "8: base.weights_seed: found 42 beside start_from"),
        ("processes: 2", "gpus_per_worker: 2\n    processes: 12", "28: scales.paper.processes: found 12"),
        ("batch_size: 8", "batch_size: 8\n  gpus_per_worker: 3", "6: base.batch_size: found 8"),
        ("processes: 2\n    resources: {nodes: 2}",
         "processes: 8\n    gpus_per_worker: 2\n    resources: {nodes: 2, gpus_per_node: 2}",
         "29: scales.paper.resources.gpus_per_node: found 2"),
        ("processes: 2", "gpus_per_worker: 2\n    processes: 8\n    engine: {name: deepspeed}",
         "29: scales.paper.engine.name: found deepspeed with 4 workers on 8 processes",
         "29: scales.paper.engine.name: found deepspeed with sync allreduce",
         "29: scales.paper.engine.name: found deepspeed with sync local"),
        ("processes: 2", "gpus_per_worker: 2\n    processes: 4\n    engine: {name: ddp}",
         "29: scales.paper.engine.name: found ddp with sync allreduce",
         "29: scales.paper.engine.name: found ddp with sync local"),
        ("batch_size: 8", "batch_size: 128", "6: base.batch_size: found 128"),
        ("nodes: 2", "nodes: 3", "28: scales.paper.resources.nodes: found 3"),
        ("momentum: 0.9, ", "", "8: base.optimizer.nesterov: found true without momentum"),
        ("widths: [4, 8]", "norm: batch", "2: base.evaluation.bn_batches: found 0 with 4 workers"),
        ("epochs: 5", "epochs: 5\n  evaluation: {bn_batches: 1}", "8: base.evaluation.bn_batches: found 1"),
        ("alpha: 0.2, h_base: 2}}", "alpha: 0.2, h_warmup: 1}}\n    schedule: {warmup_epochs: 0}",
         "19: series.qsr.sync.period.h_warmup: found 1 without a warm-up in schedule"),
        ("{name: toy}", "{name: toy", "4: YAML syntax error: did not find expected ',' or '}'"),
        ("expect: QSR wins", "expect: QSR: wins", "1: YAML syntax error: mapping values are not allowed"),
        ("  workers: 4", "  workers: 4\n  workers: 8", "6: base.workers: duplicate key, already on line 5"),
        ("data: {name: toy}", "data: &toy {name: toy}\n  model: *toy", "4: base.model: YAML alias found",
         "5: base.model: duplicate key, already on line 4"),
        ("data: {name: toy}", "data: !!python/object:os.system {name: toy}",
         "3: base.data: found the YAML tag 'tag:yaml.org,2002:python/object:os.system'"),
        ("  workers: 4", "  4: workers", "5: base: found the key 4"),
        ("nesterov", "neste\x07rov", "8: YAML syntax error: "),
        ("  paper:\n", "  paper:\n    series_only: [qsr]\n", "14: series.h4: exists at no scale"),
        ("  workers: 4", "  workers: 4\n  device: cuda", "6: base.device: has no effect: "),
        ("  h4:\n", '  "a b; rm -rf x":\n', "14: series.a b; rm -rf x: found the key 'a b; rm -rf x'"),
    ],
    COSINE: [
        ("{name: step, max_lr: 0.8, decays: [1]}", "9: base.schedule.decays[0]: found 1"),
        ("{name: step, max_lr: 0.8, decays: [[1.5, .1], [1, .1]]}", "9: base.schedule.decays[1][0]: found 1"),
        ("{name: step, max_lr: 0.8, decays: [[3, .1]]}", "9: base.schedule.decays[0][0]: found 3"),
        ("{name: cosine, max_lr: 0.8, warmup_epochs: 1, warmup_steps: 4}",
         "9: base.schedule.warmup_steps: found 4 beside warmup_epochs = 1"),
        ("{name: cosine, max_lr: 0.8, warmup_steps: 16}", "9: base.schedule.warmup_steps: found 16"),
        ("{name: linear, max_lr: 0.8, warmup_start: 0.1}", "9: base.schedule.warmup_start: found 0.1 without a "),
        ("{name: linear, max_lr: 0.8, warmup_every: epoch}", "9: base.schedule.warmup_every: found 'epoch' without a "),
        ("{name: linear, max_lr: 0.8, min_lr: 1}", "9: base.schedule.min_lr: found 1"),
    ],
    SMOKE: [
        ("device: cpu", "devise: cpu", "2: devise: unknown key"),
        ("[0, 1]", "[0, -1]", "1: seeds[1]: found -1"),
        ("[0, 1]", "[1, 1]", "1: seeds: found [1, 1]"),
        ("[0, 1]", "[0, 1]\npilot_seeds: [9, 9]", "2: pilot_seeds: found [9, 9]"),
        ("[0, 1]", "[0, 1]\npilot_seeds: [9, 1]", "2: pilot_seeds: found 1, which is one of the seeds [0, 1]"),
    ],
    PAPER: [
        ("  - id: fig1\n    kind: curve", "  - id: fig1\n    kind: curv", "7: figures[0].kind: found 'curv'"),
        ("metric: val_loss", "metrik: val_loss", "15: tables[0].options.metrik: unknown key"),
        ("metric: val_loss", "metric: val_los", "15: tables[0].options.metric: found 'val_los'"),
        ("vit/qsr", "vit/qrs", "9: figures[0].series[0]: found 'qrs'"),
        ("    series: [vit]\n", "", "11: tables[0].series: found []"),
        ("kind: curve\n    title: A table", "kind: law\n    title: A table", "14: tables[0].series: found ['vit']",
         "15: tables[0].options.metric: unknown key"),
        ("id: table1", "id: fig1", "11: tables[0].id: found 'fig1' again"),
        ('"2310.14423"', "2310.14423", "4: arxiv: found 2310.14423"),
        ("title: A rule", "title: A rule\nmetrics_at: {smoke: {val_top1: worker_val_top1_mean}}",
         "7: figures[0]: found worker_val_top1_mean, which vit/qsr does not measure at scale smoke"),
        ("title: A rule", "title: A rule\nmetrics_at: {smoke: {val_top5: worker_val_top5_mean}}",
         "2: metrics_at.smoke.val_top5: has no effect"),
        ("title: A rule", "title: A rule\nmetrics_at: {paper: {val_top1: val_loss}}",
         "2: metrics_at.paper.val_top1: found val_loss"),
    ],
    PUBLISHED: [
        ("item: table1", "item: table2", "2: [0].item: found 'table2'"),
        ("experiment: vit", "experiment: vti", "3: [0].experiment: found 'vti'"),
        ("series: qsr", "series: qsr_h4", "4: [0].series: found 'qsr_h4'"),
        ("status: verified", "status: verified\n  scale: mini", "11: [0].scale: qsr does not exist at scale mini"),
        ("val_top1", "val_tpo1", "5: [0].metric: found 'val_tpo1'"),
        ("verified", "verifed", "10: [0].status: found 'verifed'"),
        ("status: verified", "status: missing", "6: [0].value: found 80.98"),
        ("value: 80.98", "value: null", "6: [0].value: found null"),
        ('"%"', '"%"\n  tolerance: 0.1', "1: [0].tolerance_reason: found null"),
        ("metric: val_top1", "metric: val_top1\n  network: ethernet_10g", "6: [0].network: has no effect on val_top1"),
        ("metric: val_top1", "metric: val_top1\n  comparison: difference", "6: [0].comparison: has no effect"),
        ("  std: 0.05\n  n: 3\n", "  than: qsr\n", "7: [0].than: found qsr again"),
        ("  std: 0.05\n  n: 3\n", "  than: qrs\n", "7: [0].than: found 'qrs'"),
        ("metric: val_top1", "metric: val_top1\n  than: h4", "8: [0].std: has no effect on a bound or beside "),
        ("metric: val_top1", "metric: val_top1\n  bound: lower", "8: [0].std: has no effect on a bound or beside "),
        ("  std: 0.05\n  n: 3\n", "  than: h4\n  comparison: ratio\n", "9: [0].unit: found '%'"),
        ('80.98\n  std: 0.05\n  n: 3\n  unit: "%"', '0\n  than: h4\n  comparison: ratio\n  unit: "1"',
         "6: [0].value: found 0"),
        ("  std: 0.05\n  n: 3\n", "  relative_to: h4\n", "7: [0].relative_to: found for val_top1"),
        ('val_top1\n  value: 80.98\n  std: 0.05\n  n: 3\n  unit: "%"',
         "training_hours\n  value: 1\n  than: h4\n  unit: h",
         "1: [0].comparison: found a difference of training_hours"),
        ('val_top1\n  value: 80.98\n  std: 0.05\n  n: 3\n  unit: "%"',
         "training_hours\n  value: 1\n  relative_to: h4\n  unit: h",
         "7: [0].relative_to: found h4, for which no training_hours is published"),
        ("metric: val_top1", "metric: worker_val_top1_mean", "5: [0].metric: found worker_val_top1_mean"),
        ("  experiment: vit\n", "", "1: [0].of: found series, allowed: experiment and series, or of"),
        ("  experiment: vit\n  series: qsr\n", "", "1: [0].of: found nothing, allowed: experiment and series, or of"),
        ("series: qsr", "series: qsr\n  of: a large model", "5: [0].of: found experiment and series and of, allowed: "),
        ("experiment: vit\n  series: qsr", "of: a large model", "2: [0].item: has no effect with of"),
        ("item: table1\n  experiment: vit\n  series: qsr\n  metric: val_top1\n  value: 80.98\n  std: 0.05\n  n: 3\n",
         "of: a large model\n  metric: volume_percent\n  value: 25\n",
         "3: [0].metric: found volume_percent, which needs no training"),
        ("val_top1\n  value: 80.98\n  std: 0.05\n  n: 3\n", "volume_percent\n  value: 25\n  bound: upper\n",
         "7: [0].bound: found for volume_percent"),
    ],
    CLAIMS: [
        ("experiment: vit\n  better", "experiment: vti\n  better", "3: [0].experiment: found 'vti'"),
        ("than: parallel", "than: paralel", "5: [0].than: found 'paralel'"),
        ("than: parallel", "than: vit/paralel", "5: [0].than: found 'paralel'"),
        ("[qsr, h4, parallel]", "[qsr, h5, paralel]", "15: [1].order[1]: found 'h5'",
         "15: [1].order[2]: found 'paralel'"),
        ("scales: [paper]", "scales: [smoke, mini, paper]", "19: [1].scales: qsr does not exist at scale mini",
         "19: [1].scales: h4 does not exist at scale smoke", "19: [1].scales: h4 does not exist at scale mini",
         "19: [1].scales: parallel does not exist at scale mini"),
        ("metric: val_top1", "metric: best_worker_val_top1_mean", "6: [0].metric: found best_worker_val_top1_mean",
         "6: [0].metric: found best_worker_val_top1_mean"),
        ("metric: val_top1", "metric: val_perplexity", "6: [0].metric: found val_perplexity",
         "6: [0].metric: found val_perplexity"),
        ("metric: val_top1", "metric: val_top1\n  at_epoch: 3",
         "7: [0].at_epoch: found 3, after which vit/qsr is not evaluated at scale smoke"),
        ("metric: val_top1", "metric: val_top1\n  at_epoch: 0.5",
         "7: [0].at_epoch: found 0.5, after which vit/qsr is not evaluated",
         "7: [0].at_epoch: found 0.5, after which vit/qsr is not evaluated"),
        ("at_least: 5", "at_least: 5\n  confidence: 0.9", "19: [1].confidence: has no effect on an exact number"),
        ("at_least: 0.3", "at_least: 0.3\n  expected: {mini: 1}", "9: [0].expected: found mini"),
        ("at_least: 0.3", "at_least: 0.3\n  control: volumes",
         "9: [0].control: found 'volumes'"),
        ("at_least: 0.3", "at_least: 0.3\n  continues: volumes", "9: [0].continues: found 'volumes'"),
        ("at_least: 5", "at_least: 5\n  seeds: {paper: 6}", "19: [1].seeds: has no effect on an exact number"),
        ("metric: val_top1", "item: fig2\n  metric: val_top1", "6: [0].item: found 'fig2'"),
        ("metric: val_top1", "metric: val_top1\n  hardware: one GPU", "7: [0].hardware: has no effect on val_top1"),
        ("at_least: 5", "at_least: 5\n  at_epoch: 2", "19: [1].at_epoch: found for volume_percent"),
        ("  than: parallel\n", "", "1: [0]: found better"),
        ("than: parallel", "than: vit/qsr", "5: [0].than: found a series twice"),
        ("id: volumes", "id: qsr_wins", "12: [1].id: found 'qsr_wins' again"),
    ],
}  # fmt: skip
"""In each file (in the schedule of VIT): what is replaced by what, and the beginnings of the lines that follow."""


def check(lines, expected):
    """The lines begin as expected, and none is a traceback."""
    assert [line[: len(start)] for line, start in zip(sorted(lines), sorted(expected), strict=True)] == sorted(expected)
    assert not any("Traceback" in line or "pydantic" in line for line in lines)


CASES = [(VIT, COSINE, *case) if file == COSINE else (file, *case) for file, cases in WRONG.items() for case in cases]


@pytest.mark.parametrize(("file", "old", "new", "expected"), [(*case[:3], case[3:]) for case in CASES])
def test_wrong_input_gives_one_line_a_problem(workspace, lines_of, file, old, new, expected):
    if file == CLAIMS:
        workspace.write(CLAIMS, CLAIMS_TEXT)
    workspace.change(file, old, new)
    check(lines_of(workspace.load), [f"{file}:{line}" for line in expected])


def test_claims_name_their_series_from_the_best(workspace):
    workspace.write(CLAIMS, CLAIMS_TEXT)
    claims = workspace.load().papers["qsr"].claims
    assert [claim.series for claim in claims] == [("qsr", "parallel"), ("qsr", "h4", "parallel")]
    assert [claim.unit for claim in claims] == ["%", "%"]


def test_all_errors_of_all_files_are_in_one_error(workspace, lines_of):
    workspace.change(VIT, "h: 4", "h: 0")
    workspace.change(VIT, "expect: QSR wins", "expected: QSR wins")
    workspace.change(SMOKE, "device: cpu", "device: cqu")
    workspace.change(PAPER, "vit/qsr", "vti/qsr")
    workspace.change(PUBLISHED, "value: 80.98", "value: high")
    workspace.write("configs/qsr/experiments/other.yaml", "a: [")
    lines = lines_of(workspace.load)
    assert [line.split(": ")[0] for line in lines] == [
        "configs/qsr/experiments/other.yaml:2",
        f"{VIT}:1",
        f"{VIT}:16",
        f"{PAPER}:9",
        f"{PUBLISHED}:6",
        f"{SMOKE}:2",
    ]


FILES = [
    (PAPER, None, ": the file does not exist"),
    ("configs/scales/mini.yaml", None, ": the file does not exist"),
    (PAPER, b"# nothing\n", ":1: the file is empty, allowed: a mapping or a list, such as {}"),
    (PAPER, b"\xff\xfe", ": the file is not UTF-8 text"),
    (VIT, b"- 1\n", ":1: found [1], allowed: a mapping"),
    ("configs/qsr/vit.yaml", b"{}", ": nothing reads this file, allowed: paper.yaml, "),
    ("configs/scales/huge.yaml", b"{}", ": nothing reads this file, allowed: smoke.yaml, "),
    ("configs/qsr/experiments/new.yml", b"{}", ": nothing reads this file, allowed: *.yaml"),
    ("configs/qsr/experiments/ViT.yaml", b"{}", ": found the name 'ViT', allowed: lower-case letters, digits and _"),
]


@pytest.mark.parametrize(("file", "content", "message"), FILES)
def test_files_that_cannot_be_read_are_named(workspace, lines_of, file, content, message):
    if content is None:
        (workspace.root / file).unlink()
    else:
        (workspace.root / file).write_bytes(content)
    assert [line for line in lines_of(workspace.load) if line.startswith(file + message)]


def test_folder_that_does_not_exist_is_named(workspace, lines_of):
    assert lines_of(lambda: load_suite(workspace.root / "nowhere")) == ["nowhere: the folder does not exist"]


def test_item_whose_series_share_no_scale_is_an_error(workspace, lines_of):
    workspace.change(VIT, "[parallel, qsr]", "[parallel]")
    workspace.change(VIT, "      qsr: {sync: {period: {alpha: 0.1}}}", "      parallel: {threads: 2}")
    workspace.change(VIT, "  paper:\n", "  paper:\n    series_only: [qsr, h4]\n")
    lines = lines_of(workspace.load)
    problem = "no scale has all of these series, allowed: series that share a scale"
    assert lines == [f"{PAPER}:6: figures[0].series: {problem}"]


COMPONENTS = [
    ("workers/sync/options/local.py", '] = "local"', '] = "allreduce"',
     "Local.name: found 'allreduce', which allreduce.py has too, allowed: another name"),
    ("workers/sync/options/local.py", "Field(description", "Field(default=0, description",
     "default of Local: period: found 0"),
    ("tasks/data/toy.yaml", "train_samples: 64, ", "", "facts.train_samples: found null"),
    ("tasks/data/toy.yaml", "samples: 64, ", "samples: 64, task: translation, ", "facts.target_language: found null"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "old", "new", "expected"), COMPONENTS)
def test_wrong_component_declaration_is_named_by_its_own_file(workspace, lines_of, file, old, new, expected):
    workspace.own_package()
    workspace.change(f"package/{file}", old, new)
    [line] = lines_of(workspace.load)
    assert line.startswith(f"{workspace.root.resolve()}/package/{file}:")
    assert expected in line


def replaced(node, path, value):
    """The tree `node` with another value at `path`."""
    if not path:
        return replace(node, value=value)
    entries = dict(node.value) if isinstance(node.value, dict) else list(node.value)
    entries[path[0]] = replaced(entries[path[0]], path[1:], value)
    return replace(node, value=entries)


def paths(node):
    """The key paths of all values in a tree."""
    yield node.path
    children = node.entries.values() if isinstance(node.value, dict) else node.value
    if isinstance(node.value, (dict, list)):
        for child in children:
            yield from paths(child)


def lines_of_load(workspace):
    """The lines of a ConfigError; none if the suite is fine."""
    try:
        workspace.load()
    except ConfigError as error:
        return error.lines
    return ()


@pytest.mark.parametrize("value", ["101", "-0.5"])
def test_a_published_value_is_one_that_its_metric_can_have(value: str, workspace, lines_of):
    workspace.change(PUBLISHED, "value: 80.98", f"value: {value}")
    [line] = lines_of(workspace.load)
    assert line.endswith(f"{PUBLISHED}:6: [0].value: found {value} %, allowed: 0 to 100, as val_top1 can be")


@pytest.mark.parametrize("file", [VIT, PAPER, PUBLISHED, SMOKE])
def test_no_value_anywhere_ends_in_a_traceback(workspace, monkeypatch, file):
    originals = {str(path): load(path) for path in workspace.configs.rglob("*.yaml")}
    content = dict(originals)
    monkeypatch.setattr(problems, "load", lambda path: content[str(path)])
    for path in paths(originals[file]):
        for text in ("null", "wrong", "[[1]]", "{a: {b: 1}}"):
            content[file] = replaced(originals[file], path, parse(text, file).value)
            lines = lines_of_load(workspace)
            assert all("\n" not in line and line.startswith("configs/") for line in lines)

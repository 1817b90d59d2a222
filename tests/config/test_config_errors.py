"""Wrong input by input: one line each, with file, line, key path, value found and values allowed."""

from dataclasses import replace

import pytest

from resync.paper import load_suite
from resync.settings import problems
from resync.settings.errors import ConfigError
from resync.settings.loader import load, parse

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
  test: welch
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
  test: exact
  scales: [paper]
  status: derived
  source: schedule
"""
SMOKE = "configs/scales/smoke.yaml"

COSINE = "{name: cosine, max_lr: 0.8, min_lr: 1e-6, warmup_epochs: 1}"


def case(name, file, old, new, *lines):
    """`old` in `file` replaced by `new` gives lines that begin so, after the file's name: line, key, value found."""
    return pytest.param(file, old, new, [f"{file}:{line}" for line in lines], id=name.replace(" ", "_"))


def schedule(name, text, *lines):
    """A schedule in the place of the cosine."""
    return case(name, VIT, COSINE, text, *lines)


KEYS = [
    case("misspelt", VIT, "  epochs: 5", "  epoch: 5", "7: base.epoch: unknown key"),
    case("misspelt option", VIT, "alpha: 0.2,", "alfa: 0.2,",
         "19: series.qsr.sync.period.alfa: unknown key, allowed: rule, alpha, power, h_base, h_warmup, h_max; "
         "did you mean 'alpha'?"),
    case("misspelt in a scale", SMOKE, "device: cpu", "devise: cpu", "2: devise: unknown key"),
    case("misspelt series_only", VIT, "series_only", "serie_only", "22: scales.smoke.serie_only: unknown key"),
    case("option of another choice", VIT, "sync: {name: allreduce}", "sync: {name: allreduce, peers: 1}",
         "13: series.parallel.sync.peers: unknown key"),
    case("name of a run", VIT, "workers: 4", "workers: 4\n  seed: 3", "6: base.seed: unknown key"),
    case("label of all", VIT, "workers: 4", "workers: 4\n  label: All", "6: base.label: unknown key"),
    case("missing", VIT, "  workers: 4\n", "", "2: base.workers: missing, allowed: integer >= 1"),
    case("missing in a series", VIT, "    sync: {name: allreduce}\n", "", "11: series.parallel.sync: missing"),
    case("missing at a scale", VIT, "  epochs: 5\n", "", "2: base.epochs: missing"),
    case("missing option", VIT, "rule: constant, h: 4", "rule: constant", "16: series.h4.sync.period.h: missing"),
    case("missing claim", VIT, "expect: QSR wins\n", "", "1: expect: missing"),
    case("missing label", VIT, "    label: QSR\n", "", "17: series.qsr.label: missing"),
    case("name of a series", VIT, "  h4:\n", "  H-4:\n", "14: series.H-4: found the key 'H-4'"),
    case("name of a scale", VIT, "  paper:\n", "  papr:\n", "26: scales.papr: found the key 'papr'"),
]  # fmt: skip

VALUES = [
    case("text for a count", VIT, "workers: 4", "workers: four", "5: base.workers: found 'four'"),
    case("quoted number", VIT, "workers: 4", "workers: '4'", "5: base.workers: found '4'"),
    case("fraction", VIT, "workers: 4", "workers: 4.0", "5: base.workers: found 4.0"),
    case("boolean", VIT, "workers: 4", "workers: true", "5: base.workers: found true"),
    case("nothing", VIT, "workers: 4", "workers:", "5: base.workers: found null"),
    case("yes", VIT, "nesterov: true", "nesterov: yes", "8: base.optimizer.nesterov: found 'yes'"),
    case("octal", VIT, "epochs: 5", "epochs: 05", "7: base.epochs: found '05'"),
    case("infinity", VIT, "max_lr: 0.8", "max_lr: .inf", "9: base.schedule.max_lr: found inf"),
    case("text for a mapping", VIT, "data: {name: toy}", "data: toy", "3: base.data: found 'toy'"),
    case("zero H", VIT, "h: 4", "h: 0", "16: series.h4.sync.period.h: found 0"),
    case("zero epochs", VIT, "epochs: 2", "epochs: 0", "23: scales.smoke.epochs: found 0",
         "9: base.schedule.warmup_epochs: found 1"),
    case("momentum 1", VIT, "momentum: 0.9", "momentum: 1",
         "8: base.optimizer.momentum: found 1, allowed: number >= 0 and < 1"),
    case("item of a list", VIT, "[4, 8]", "[4, 0]", "4: base.model.widths[1]: found 0"),
    case("empty list", VIT, "[4, 8]", "[]",
         "4: base.model.widths: found [], allowed: list of integer >= 1 with at least 1"),
    case("enumeration", SMOKE, "device: cpu", "device: cqu",
         "2: device: found 'cqu', allowed: auto, cpu, cuda; did you mean 'cpu'?"),
    case("negative seed", SMOKE, "[0, 1]", "[0, -1]", "1: seeds[1]: found -1"),
    case("equal seeds", SMOKE, "[0, 1]", "[1, 1]", "1: seeds: found [1, 1]"),
    case("equal pilot seeds", SMOKE, "[0, 1]", "[0, 1]\npilot_seeds: [9, 9]", "2: pilot_seeds: found [9, 9]"),
    case("a pilot seed that decides", SMOKE, "[0, 1]", "[0, 1]\npilot_seeds: [9, 1]",
         "2: pilot_seeds: found 1, which is one of the seeds [0, 1]"),
]  # fmt: skip

NAMES = [
    case("schedule", VIT, "name: cosine", "name: cosin", "9: base.schedule.name: found 'cosin'"),
    case("rule", VIT, "rule: constant", "rule: const", "16: series.h4.sync.period.rule: found 'const'"),
    case("component", VIT, "name: allreduce", "name: allreduc",
         "13: series.parallel.sync.name: found 'allreduc', allowed: allreduce, local; did you mean 'allreduce'?"),
    case("no component", VIT, "name: net, ", "", "4: base.model.name: missing"),
    case("no schedule", VIT, "name: cosine, ", "", "9: base.schedule.name: missing"),
    case("number for a component", VIT, "name: toy", "name: 3", "3: base.data.name: found 3"),
    case("series of an overlay", VIT, "      qsr: {", "      qrs: {", "25: scales.smoke.series.qrs: found 'qrs'"),
    case("overlay without effect", VIT, "      qsr: {sync: {period: {alpha: 0.1}}}", "      h4: {epochs: 3}",
         "25: scales.smoke.series.h4: has no effect"),
    case("series_only", VIT, "[parallel, qsr]", "[paralel, qsr]",
         "22: scales.smoke.series_only[0]: found 'paralel', allowed: parallel, h4, qsr; did you mean 'parallel'?"),
    case("kind", PAPER, "  - id: fig1\n    kind: curve", "  - id: fig1\n    kind: curv",
         "7: figures[0].kind: found 'curv'"),
    case("option of a kind", PAPER, "metric: val_loss", "metrik: val_loss",
         "15: tables[0].options.metrik: unknown key"),
    case("value of a kind's option", PAPER, "metric: val_loss", "metric: val_los",
         "15: tables[0].options.metric: found 'val_los'"),
    case("series of a figure", PAPER, "vit/qsr", "vit/qrs", "9: figures[0].series[0]: found 'qrs'"),
    case("experiment of a table", PAPER, "series: [vit]", "series: [vitt]", "14: tables[0].series[0]: found 'vitt'"),
    case("no series", PAPER, "    series: [vit]\n", "", "11: tables[0].series: found []"),
    case("series of a kind without any", PAPER, "kind: curve\n    title: A table", "kind: law\n    title: A table",
         "14: tables[0].series: found ['vit']", "15: tables[0].options.metric: unknown key"),
    case("id twice", PAPER, "id: table1", "id: fig1", "11: tables[0].id: found 'fig1' again"),
    case("arxiv number", PAPER, '"2310.14423"', "2310.14423", "4: arxiv: found 2310.14423"),
    case("item of a value", PUBLISHED, "item: table1", "item: table2", "2: [0].item: found 'table2'"),
    case("experiment of a value", PUBLISHED, "experiment: vit", "experiment: vti", "3: [0].experiment: found 'vti'"),
    case("series of a value", PUBLISHED, "series: qsr", "series: qsr_h4", "4: [0].series: found 'qsr_h4'"),
    case("scale of a value", PUBLISHED, "status: verified", "status: verified\n  scale: mini",
         "11: [0].scale: qsr does not exist at scale mini"),
    case("metric of a value", PUBLISHED, "val_top1", "val_tpo1", "5: [0].metric: found 'val_tpo1'"),
    case("status of a value", PUBLISHED, "verified", "verifed", "10: [0].status: found 'verifed'"),
]  # fmt: skip

CLAIMED = [
    case("experiment of a claim", CLAIMS, "experiment: vit\n  better", "experiment: vti\n  better",
         "3: [0].experiment: found 'vti'"),
    case("series of a claim", CLAIMS, "than: parallel", "than: paralel", "5: [0].than: found 'paralel'"),
    case("experiment of a claimed series", CLAIMS, "than: parallel", "than: vti/parallel", "5: [0].than: found 'vti'"),
    case("series of a claimed experiment", CLAIMS, "than: parallel", "than: vit/paralel",
         "5: [0].than: found 'paralel'"),
    case("series of an order", CLAIMS, "[qsr, h4, parallel]", "[qsr, h5, paralel]", "16: [1].order[1]: found 'h5'",
         "16: [1].order[2]: found 'paralel'"),
    case("scale of a claim", CLAIMS, "scales: [paper]", "scales: [smoke, mini, paper]",
         "21: [1].scales: qsr does not exist at scale mini", "21: [1].scales: h4 does not exist at scale smoke",
         "21: [1].scales: h4 does not exist at scale mini", "21: [1].scales: parallel does not exist at scale mini"),
    case("metric of a claim", CLAIMS, "val_top1", "val_top_1", "6: [0].metric: found 'val_top_1'"),
    case("claim on what is not measured", CLAIMS, "metric: val_top1", "metric: best_worker_val_top1_mean",
         *(f"6: [0].metric: found best_worker_val_top1_mean, which vit/qsr does not measure at scale {scale}"
           for scale in ("smoke", "paper"))),
    case("claim on another task", CLAIMS, "metric: val_top1", "metric: val_perplexity",
         *2 * ["6: [0].metric: found val_perplexity, which vit/qsr does not measure"]),
    case("claim after the end", CLAIMS, "metric: val_top1", "metric: val_top1\n  at_epoch: 3",
         "7: [0].at_epoch: found 3, after which vit/qsr is not evaluated at scale smoke"),
    case("claim within an epoch", CLAIMS, "metric: val_top1", "metric: val_top1\n  at_epoch: 0.5",
         *2 * ["7: [0].at_epoch: found 0.5, after which vit/qsr is not evaluated"]),
    case("test of a claim", CLAIMS, "test: welch", "test: welsh", "9: [0].test: found 'welsh'"),
    case("exact test of seeds", CLAIMS, "test: welch", "test: exact", "9: [0].test: found 'exact'"),
    case("test of a schedule", CLAIMS, "test: exact", "test: paired", "20: [1].test: found 'paired'"),
    case("confidence in a schedule", CLAIMS, "test: exact", "test: exact\n  confidence: 0.9",
         "21: [1].confidence: has no effect in an exact test"),
    case("expected effect in a schedule", CLAIMS, "test: exact", "test: exact\n  expected: {smoke: 1}",
         "21: [1].expected: has no effect in an exact test"),
    case("expected effect elsewhere", CLAIMS, "test: welch", "test: welch\n  expected: {mini: 1}",
         "10: [0].expected: found mini"),
    case("item of a claim", CLAIMS, "metric: val_top1", "item: fig2\n  metric: val_top1", "6: [0].item: found 'fig2'"),
    case("hardware of an accuracy", CLAIMS, "metric: val_top1", "metric: val_top1\n  hardware: one GPU",
         "7: [0].hardware: has no effect on val_top1"),
    case("epoch of a schedule", CLAIMS, "test: exact", "test: exact\n  at_epoch: 2",
         "21: [1].at_epoch: found for volume_percent"),
    case("certainty of a claim", CLAIMS, "test: welch", "test: welch\n  confidence: 95",
         "10: [0].confidence: found 95"),
    case("better without than", CLAIMS, "  than: parallel\n", "", "1: [0]: found better"),
    case("series against itself", CLAIMS, "than: parallel", "than: vit/qsr", "5: [0].than: found a series twice"),
    case("claim twice", CLAIMS, "id: volumes", "id: qsr_wins", "13: [1].id: found 'qsr_wins' again"),
]  # fmt: skip

TOGETHER = [
    case("processes and workers", VIT, "processes: 2", "processes: 3", "27: scales.paper.processes: found 3",
         "28: scales.paper.resources.nodes: found 2"),
    case("batch size and workers", VIT, "batch_size: 8", "batch_size: 10", "6: base.batch_size: found 10"),
    case("micro-batch and batch of a worker", VIT, "batch_size: 8", "batch_size: 8\n  micro_batch_size: 3",
         "7: base.micro_batch_size: found 3"),
    case("loss scale without fp16", VIT, "epochs: 5", "epochs: 5\n  loss_scale: {retries: 3}",
         "8: base.loss_scale: found with precision fp32"),
    case("plateau and a period that follows the lr", VIT, "epochs: 5", "epochs: 5\n  plateau: {patience: 3}",
         "8: base.plateau: found with the period rule power"),
    case("two starts", VIT, "epochs: 5", "epochs: 5\n  start_from: vit/qsr/seed0\n  start_checkpoint: common.pt",
         "9: base.start_checkpoint: found beside start_from vit/qsr/seed0"),
    case("processes and GPUs of workers", VIT, "processes: 2", "gpus_per_worker: 2\n    processes: 12",
         "28: scales.paper.processes: found 12"),
    case("batch size and GPUs", VIT, "batch_size: 8", "batch_size: 8\n  gpus_per_worker: 3",
         "6: base.batch_size: found 8"),
    case("micro-batch and batch of a GPU", VIT, "batch_size: 8",
         "batch_size: 16\n  gpus_per_worker: 2\n  micro_batch_size: 4", "8: base.micro_batch_size: found 4"),
    case("GPUs of a machine and processes", VIT, "processes: 2\n    resources: {nodes: 2}",
         "processes: 8\n    gpus_per_worker: 2\n    resources: {nodes: 2, gpus_per_node: 2}",
         "29: scales.paper.resources.gpus_per_node: found 2"),
    case("deepspeed with several processes for a worker", VIT, "processes: 2",
         "gpus_per_worker: 2\n    processes: 8\n    engine: {name: deepspeed}",
         "29: scales.paper.engine.name: found deepspeed with 4 workers on 8 processes",
         *(f"29: scales.paper.engine.name: found deepspeed with sync {name}" for name in ("allreduce", "local"))),
    case("ddp without processes for members", VIT, "processes: 2",
         "gpus_per_worker: 2\n    processes: 4\n    engine: {name: ddp}",
         *(f"29: scales.paper.engine.name: found ddp with sync {name}" for name in ("allreduce", "local"))),
    case("batch size and data", VIT, "batch_size: 8", "batch_size: 128", "6: base.batch_size: found 128"),
    case("nodes and processes", VIT, "nodes: 2", "nodes: 3", "28: scales.paper.resources.nodes: found 3"),
    case("Nesterov without momentum", VIT, "momentum: 0.9, ", "",
         "8: base.optimizer.nesterov: found true without momentum"),
    case("BatchNorm without its statistics", VIT, "widths: [4, 8]", "norm: batch",
         "2: base.evaluation.bn_batches: found 0 with 4 workers"),
    case("BatchNorm statistics without it", VIT, "epochs: 5", "epochs: 5\n  evaluation: {bn_batches: 1}",
         "8: base.evaluation.bn_batches: found 1"),
    case("H of no warm-up", VIT, "alpha: 0.2, h_base: 2}}",
         "alpha: 0.2, h_warmup: 1}}\n    schedule: {warmup_epochs: 0}",
         "19: series.qsr.sync.period.h_warmup: found 1 without a warm-up in schedule"),
    case("missing value with a number", PUBLISHED, "status: verified", "status: missing", "6: [0].value: found 80.98"),
    case("value without a number", PUBLISHED, "value: 80.98", "value: null", "6: [0].value: found null"),
    case("tolerance without a reason", PUBLISHED, '"%"', '"%"\n  tolerance: 0.1',
         "1: [0].tolerance_reason: found null"),
    case("comparison of one series", PUBLISHED, "metric: val_top1", "metric: val_top1\n  comparison: difference",
         "6: [0].comparison: has no effect without than"),
    case("gain over itself", PUBLISHED, "  std: 0.05\n  n: 3\n", "  than: qsr\n", "7: [0].than: found qsr again"),
    case("gain over nothing", PUBLISHED, "  std: 0.05\n  n: 3\n", "  than: qrs\n", "7: [0].than: found 'qrs'"),
    case("spread of a gain", PUBLISHED, "metric: val_top1", "metric: val_top1\n  than: h4",
         "8: [0].std: has no effect on a bound or beside another series"),
    case("spread of a bound", PUBLISHED, "metric: val_top1", "metric: val_top1\n  bound: lower",
         "8: [0].std: has no effect on a bound or beside another series"),
    case("ratio with a unit", PUBLISHED, "  std: 0.05\n  n: 3\n", "  than: h4\n  comparison: ratio\n",
         "9: [0].unit: found '%'"),
    case("ratio of nothing", PUBLISHED, '80.98\n  std: 0.05\n  n: 3\n  unit: "%"',
         '0\n  than: h4\n  comparison: ratio\n  unit: "1"', "6: [0].value: found 0"),
    case("accuracy relative to another", PUBLISHED, "  std: 0.05\n  n: 3\n", "  relative_to: h4\n",
         "7: [0].relative_to: found for val_top1"),
    case("difference of times", PUBLISHED, 'val_top1\n  value: 80.98\n  std: 0.05\n  n: 3\n  unit: "%"',
         "training_hours\n  value: 1\n  than: h4\n  unit: h",
         "1: [0].comparison: found a difference of training_hours"),
    case("time relative to an unknown one", PUBLISHED, 'val_top1\n  value: 80.98\n  std: 0.05\n  n: 3\n  unit: "%"',
         "training_hours\n  value: 1\n  relative_to: h4\n  unit: h",
         "7: [0].relative_to: found h4, for which no training_hours is published"),
    case("published value of what is not measured", PUBLISHED, "metric: val_top1", "metric: worker_val_top1_mean",
         "5: [0].metric: found worker_val_top1_mean, which vit/qsr does not measure at scale paper"),
    case("figure of what is not measured", PAPER, "title: A rule",
         "title: A rule\nmetrics_at: {smoke: {val_top1: worker_val_top1_mean}}",
         "7: figures[0]: found worker_val_top1_mean, which vit/qsr does not measure at scale smoke"),
    case("metric instead of one that nothing names", PAPER, "title: A rule",
         "title: A rule\nmetrics_at: {smoke: {val_top5: worker_val_top5_mean}}",
         "2: metrics_at.smoke.val_top5: has no effect"),
    case("metric instead of another", PAPER, "title: A rule",
         "title: A rule\nmetrics_at: {paper: {val_top1: val_loss}}", "2: metrics_at.paper.val_top1: found val_loss"),
    case("bound of a volume", PUBLISHED, "val_top1\n  value: 80.98\n  std: 0.05\n  n: 3\n",
         "volume_percent\n  value: 25\n  bound: upper\n", "7: [0].bound: found for volume_percent"),
    case("unit and metric", PUBLISHED, '"%"', "h", "9: [0].unit: found 'h'"),
    schedule("empty decays", "{name: step, max_lr: 0.8, decays: []}", "9: base.schedule.decays: found []"),
    schedule("decay that is no pair", "{name: step, max_lr: 0.8, decays: [1]}", "9: base.schedule.decays[0]: found 1"),
    schedule("decays out of order", "{name: step, max_lr: 0.8, decays: [[1.5, .1], [1, .1]]}",
             "9: base.schedule.decays[1][0]: found 1, allowed: later than 1.5, the one before"),
    schedule("decay after the end", "{name: step, max_lr: 0.8, decays: [[3, .1]]}",
             "9: base.schedule.decays[0][0]: found 3"),
    schedule("warm-up in two units", "{name: cosine, max_lr: 0.8, warmup_epochs: 1, warmup_steps: 4}",
             "9: base.schedule.warmup_steps: found 4 beside warmup_epochs = 1"),
    schedule("warm-up longer than training", "{name: cosine, max_lr: 0.8, warmup_steps: 16}",
             "9: base.schedule.warmup_steps: found 16"),
    schedule("start of no warm-up", "{name: linear, max_lr: 0.8, warmup_start: 0.1}",
             "9: base.schedule.warmup_start: found 0.1 without a warm-up"),
    schedule("stairs of no warm-up", "{name: linear, max_lr: 0.8, warmup_every: epoch}",
             "9: base.schedule.warmup_every: found 'epoch' without a warm-up"),
    schedule("rising schedule", "{name: linear, max_lr: 0.8, min_lr: 1}", "9: base.schedule.min_lr: found 1"),
]  # fmt: skip

YAML = [
    case("syntax", VIT, "{name: toy}", "{name: toy",
         "4: YAML syntax error: did not find expected ',' or '}' while parsing a flow mapping"),
    case("two colons", VIT, "expect: QSR wins", "expect: QSR: wins",
         "1: YAML syntax error: mapping values are not allowed in this context"),
    case("duplicate key", VIT, "  workers: 4", "  workers: 4\n  workers: 8",
         "6: base.workers: duplicate key, already on line 5"),
    case("alias", VIT, "data: {name: toy}", "data: &toy {name: toy}\n  model: *toy",
         "4: base.model: YAML alias found, allowed: the value itself",
         "5: base.model: duplicate key, already on line 4"),
    case("code", VIT, "data: {name: toy}", "data: !!python/object:os.system {name: toy}",
         "3: base.data: found the YAML tag 'tag:yaml.org,2002:python/object:os.system'"),
    case("key that is no text", VIT, "  workers: 4", "  4: workers", "5: base: found the key 4"),
]  # fmt: skip


def check(lines, expected):
    """The lines begin as expected, and none is a traceback."""
    assert [line[: len(start)] for line, start in zip(sorted(lines), sorted(expected), strict=True)] == sorted(expected)
    assert not any("Traceback" in line or "pydantic" in line for line in lines)


@pytest.mark.parametrize(("file", "old", "new", "expected"), [*KEYS, *VALUES, *NAMES, *TOGETHER, *YAML])
def test_wrong_input_gives_one_line_a_problem(workspace, lines_of, file, old, new, expected):
    workspace.change(file, old, new)
    check(lines_of(workspace.load), expected)


@pytest.mark.parametrize(("file", "old", "new", "expected"), CLAIMED)
def test_a_wrong_claim_is_one_line_a_problem(workspace, lines_of, file, old, new, expected):
    workspace.write(CLAIMS, CLAIMS_TEXT)
    workspace.change(file, old, new)
    check(lines_of(workspace.load), expected)


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


def test_control_characters_are_named_by_their_line(workspace, lines_of):
    workspace.change(VIT, "nesterov", "neste\x07rov")
    (line,) = lines_of(workspace.load)
    assert line.startswith(f"{VIT}:8: YAML syntax error: ")


def test_series_at_no_scale_is_an_error(workspace, lines_of):
    workspace.change(VIT, "  paper:\n", "  paper:\n    series_only: [qsr]\n")
    (line,) = lines_of(workspace.load)
    assert line.startswith(f"{VIT}:14: series.h4: exists at no scale")


def test_item_whose_series_share_no_scale_is_an_error(workspace, lines_of):
    workspace.change(VIT, "[parallel, qsr]", "[parallel]")
    workspace.change(VIT, "      qsr: {sync: {period: {alpha: 0.1}}}", "      parallel: {threads: 2}")
    workspace.change(VIT, "  paper:\n", "  paper:\n    series_only: [qsr, h4]\n")
    lines = lines_of(workspace.load)
    problem = "no scale has all of these series, allowed: series that share a scale"
    assert lines == [f"{PAPER}:6: figures[0].series: {problem}"]


COMPONENTS = [
    pytest.param("package/sync/options/local.py", '] = "local"', '] = "allreduce"',
                 ["package/sync/options/local.py: Local.name: found 'allreduce', which allreduce.py has too, "
                  "allowed: another name"],
                 id="a name twice"),
    pytest.param("package/sync/options/local.py", "Field(description", "Field(default=0, description",
                 ["package/sync/options/local.py: default of Local: period: found 0, allowed: integer >= 1 or a rule"],
                 id="default of a class"),
    case("data without samples", "package/data/toy.yaml", "train_samples: 64, ", "",
         "2: facts.train_samples: found null, allowed: integer >= 1"),
    case("text without its language", "package/data/toy.yaml", "train_samples: 64, ",
         "train_samples: 64, task: translation, ",
         "2: facts.target_language: found null, allowed: a language such as de"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "old", "new", "expected"), COMPONENTS)
def test_wrong_component_declaration_is_named_by_its_own_file(workspace, lines_of, file, old, new, expected):
    workspace.own_package()
    workspace.change(file, old, new)
    lines = lines_of(workspace.load)
    assert lines == [f"{workspace.root.resolve()}/{line}" for line in expected]


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

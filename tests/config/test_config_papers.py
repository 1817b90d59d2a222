"""The declared papers: settings and numbers of the fact sheets that their configurations must keep."""

from collections import Counter
from math import cos, floor, pi
from pathlib import Path

import pytest
import yaml

from resync.base.settings.errors import ConfigError
from resync.papers.audit import audit
from resync.papers.plan import volume
from resync.papers.render import averaging_error, style
from resync.papers.render.item import load
from resync.runs.run import Run
from resync.runs.run.execution import Execution

CONFIGS = Path(__file__).parents[2] / "paper_configs"


def run_of(suite, paper, experiment, series, scale="paper"):
    return suite.runs(paper, scale, experiment=experiment, series=series)[0]


def periods(run):
    """H of every round, straight from the rule: lr of the round's first step, the last round cut."""
    schedule, rule = run.schedule, run.sync.period
    total, warm_up, step = run.total_steps, run.warmup_steps, 0
    while step < total:
        if rule.rule == "constant":
            h = rule.h
        elif step < warm_up:
            h = rule.h_base
        else:
            progress = (step - warm_up) / (total - warm_up)
            lr = schedule.min_lr + (schedule.max_lr - schedule.min_lr) * (1 + cos(pi * progress)) / 2
            h = max(rule.h_base, floor((rule.alpha / lr) ** rule.power))
        yield min(h, total - step)
        step += h


VOLUMES = {
    "vit_b16_b4096/h4": (93_600, 23_400, 25),
    "vit_b16_b4096/qsr_h4": (93_600, 9_711, 10.375),
    "vit_b16_b4096/h8": (93_600, 11_700, 12.5),
    "vit_b16_b4096/qsr_h8": (93_600, None, 6.9),
    "resnet152_b4096/h2": (62_400, 31_200, 50),
    "resnet152_b4096/qsr_h2": (62_400, 24_792, 39.7),
    "resnet152_b4096/h4": (62_400, 15_600, 25),
    "resnet152_b4096/qsr_h4": (62_400, None, 20.1),
}


@pytest.mark.parametrize(("series", "steps", "rounds", "percent"), [(key, *value) for key, value in VOLUMES.items()])
def test_qsr_volumes_follow_from_the_configuration(suite, series, steps, rounds, percent):
    run = run_of(suite, "qsr", *series.split("/"))
    found = list(periods(run))
    assert (run.total_steps, sum(found)) == (steps, steps)
    assert rounds in (None, len(found))
    assert 100 * len(found) / steps == pytest.approx(percent, abs=0.05)


def test_qsr_warms_up_with_the_period_of_the_first_round_after_it(suite):
    """Where h_warmup is null it is h_base; the paper has the H of the peak. Only a linear rule differs."""
    assert {
        (run.experiment, run.series)
        for run in suite.runs("qsr", "paper")
        if run.warmup_steps and (rule := getattr(run.sync, "period", None)) and rule.rule == "power"
        if floor((rule.alpha / run.schedule.max_lr) ** rule.power) > rule.h_base
    } == {("vit_b16_b4096_rules", "linear")}


def test_models_of_qsr_are_evaluated_at_the_end_of_rounds_and_data_parallel_training_averages_as_theirs(suite):
    of_imagenet = [run for run in suite.runs("qsr", "paper") if run.data.name == "imagenet1k"]
    assert len(of_imagenet) > 40
    assert {run.evaluation.at for run in of_imagenet} == {"rounds"}
    assert {run.engine.name for run in of_imagenet if run.series == "parallel"} == {"serial"}


def test_images_of_sgp_and_slowmo_are_the_original_files(suite):
    runs = [run for paper in ("sgp", "slowmo") for run in suite.runs(paper, "paper") if run.data.name == "imagenet1k"]
    assert {run.data.format for run in runs} == {"files"}
    assert {run.data.format for run in suite.runs("qsr", "paper")} == {"beton"}


def test_what_travels_in_streaming_diloco_is_not_thrown_away(suite):
    runs = [run for runs in suite.expanded.values() for run in runs if run.sync.name == "streaming_diloco"]
    assert {(run.sync.delay, run.sync.mixing) for run in runs if run.experiment != "fragments"} == {(1, 0.5)}


def test_qsr_weight_decay_is_that_of_figure_5(suite):
    decays = {
        name: run_of(suite, "qsr", "vit_b16_b4096", name).optimizer.weight_decay
        for name in ("parallel", "h4", "qsr_h4")
    }
    assert decays == {"parallel": 0.1, "h4": 0.05, "qsr_h4": 0.05}


def test_qsr_period_grows_at_smoke_scale(suite):
    found = list(periods(run_of(suite, "qsr", "vit_b16_b4096", "qsr_h4", "smoke")))
    assert found[0] == 4
    assert max(found) >= 16
    assert len({h for h in found if h > 4}) >= 5


@pytest.mark.parametrize("method", ["ar", "sgp"])
@pytest.mark.parametrize(
    ("nodes", "steps_per_epoch", "max_lr"), [(4, 1252, 0.4), (8, 626, 0.8), (16, 313, 1.6), (32, 157, 3.2)]
)
def test_sgp_scales_with_the_nodes(suite, method, nodes, steps_per_epoch, max_lr):
    run = run_of(suite, "sgp", "resnet50_ethernet", f"{method}_{nodes}")
    assert (run.workers, run.gpus_per_worker, run.processes) == (nodes, 8, 8 * nodes)
    assert (run.resources.nodes, run.resources.gpus_per_node) == (nodes, 8)
    assert (run.local_batch_size, run.steps_per_epoch, run.schedule.max_lr) == (256, steps_per_epoch, max_lr)
    assert (run.epochs, run.warmup_steps) == (90, 5 * steps_per_epoch)
    assert run.schedule.decays == ((30, 0.1), (60, 0.1), (80, 0.1))


@pytest.mark.parametrize(
    ("paper", "experiment", "series", "gpus", "tokens", "steps"),
    [
        ("sgp", "transformer", "ar_25k", 1, 28_000, 25_000),
        ("sgp", "transformer", "sgp_25k", 1, 28_000, 25_000),
        ("sgp", "transformer", "ar_400k", 1, 448_000, 25_000),
        ("sgp", "transformer", "sgp_400k", 1, 448_000, 25_000),
        ("slowmo", "wmt16_transformer", "local_slowmo", 8, 200_000, 25 * 650),
        ("slowmo", "wmt16_transformer", "sgp_slowmo", 8, 200_000, 25 * 650),
    ],
)
def test_transformers_are_those_of_the_papers(suite, paper, experiment, series, gpus, tokens, steps):
    run = run_of(suite, paper, experiment, series)
    assert (run.data.name, run.data.max_tokens * run.batch_size, run.total_steps) == ("wmt16_en_de", tokens, steps)
    assert (run.workers, run.processes, run.resources.nodes, run.forward_batch_size) == (8, 8 * gpus, 8, 1)
    assert (run.gpus_per_worker, run.resources.gpus_per_node) == (gpus, gpus)
    model = run.model
    assert (model.dim, model.ffn_dim, model.heads, model.encoder_layers, model.dropout) == (1024, 4096, 16, 6, 0.3)
    optimizer = run.optimizer
    assert (optimizer.beta1, optimizer.beta2, optimizer.eps, optimizer.weight_decay) == (0.9, 0.98, 1e-8, 0)
    assert (run.schedule.name, run.warmup_steps, run.loss.label_smoothing, run.clip_norm) == (
        "inverse_sqrt",
        4000,
        0.1,
        None,
    )
    if paper == "slowmo":
        assert (run.sync.alpha, run.sync.buffers) == (1, "keep")
        assert run.sync.period.h == (12 if series == "local_slowmo" else 48)


@pytest.mark.parametrize("experiment", ["vit_b16_b4096", "vit_b16_b16384", "vit_b16_b4096_linear"])
def test_vits_are_augmented_and_mixed_as_in_the_scripts_of_qsr(suite, experiment):
    """Local AdamW draws Mixup for every 128 images of a worker's 256, parallel AdamW for all of them."""
    runs = {series: run_of(suite, "qsr", experiment, series) for series in ("parallel", "qsr_h4")}
    assert {series: (run.local_batch_size, run.forward_batch_size, run.clip_norm) for series, run in runs.items()} == {
        "parallel": (256, 256, 1),
        "qsr_h4": (256, 128, None),
    }
    assert {(run.data.augmentation, run.loss.mixup, run.loss.label_smoothing) for run in runs.values()} == {
        ("strong", 0.2, 0)
    }


@pytest.mark.parametrize(
    ("paper", "experiment", "series", "first_steps"),
    [
        ("local_sgd", "cifar10_phase1", "parallel", [0.1 + 3.1 * t / 600 for t in range(3)]),
        ("local_sgd", "imagenet_phase1", "parallel", [0.5 + 15.5 * t / 780 for t in range(3)]),
        ("sgp", "resnet50_ethernet", "sgp_32", 3 * [0.1 + 3.1 / 785]),
        ("sgp", "resnet50_asynchronous", "adpsgd_32", [0.1 + 3.1 * (t + 1) / 785 for t in range(3)]),
        ("qsr", "resnet152_b4096", "parallel", [1e-6 + (0.8 - 1e-6) * t / 1560 for t in range(3)]),
    ],
)
def test_warm_ups_are_those_of_the_original_codes(suite, paper, experiment, series, first_steps):
    lr = run_of(suite, paper, experiment, series).lr
    assert [lr(step) for step in range(3)] == pytest.approx(first_steps, rel=1e-12)


TRANSLATION = {"data": {"name": "sentences"}, "model": {"name": "transformer"}, "steps_per_epoch": 5, "batch_size": 8}

LANGUAGE_MODEL = {"data": {"name": "sonnets"}, "model": {"name": "gpt"}}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"data": {"name": "sentences"}}, "model.name: found mlp for classification, "),
        ({"model": {"name": "transformer"}}, "model.name: found transformer for translation, "),
        (TRANSLATION | {"steps_per_epoch": None}, "steps_per_epoch: found null, allowed: integer >= 1, "),
        (TRANSLATION | {"batch_size": 16}, "micro_batch_size: found null with 2 buckets per worker, allowed: 1"),
        (TRANSLATION | {"loss": {"label_noise": 0.2}}, "loss.label_noise: has no effect in translation"),
        ({"loss": {"label_noise": 1}}, "loss.label_noise: found 1, allowed: number > 0 and < 1 or null"),
        (TRANSLATION | {"heterogeneity": {"alpha": 0.1}}, "heterogeneity: has no effect in translation"),
        ({"workers": 1, "processes": 1, "heterogeneity": {"alpha": 0.1}}, "heterogeneity: found with 1 worker"),
        (TRANSLATION | {"batch_size": 8, "micro_batch_size": 1, "evaluation": {"sharpness_batches": 2}},
         "evaluation.sharpness_batches: has no effect in translation"),
        ({"evaluation": {"sharpness_batches": 2}, "precision": "bf16"},
         "evaluation.sharpness_batches: found with precision bf16, "),
        ({"evaluation": {"beam_search": {"beam_size": 4, "length_penalty": 1}}}, "evaluation.beam_search: has no "),
        (TRANSLATION | {"evaluation": {"random_batches": 2}}, "evaluation.random_batches: has no effect in "),
        ({"evaluation": {"sample_characters": 9}}, "evaluation.sample_characters: has no effect in classification"),
        (LANGUAGE_MODEL | {"loss": {"mixup": 0.2}}, "loss.mixup: has no effect in language_model"),
        (LANGUAGE_MODEL | {"data": {"name": "sonnets", "context": 369}}, "data.context: found 369, "),
        (TRANSLATION | {"schedule": {"name": "inverse_sqrt", "max_lr": 0.1}}, "schedule.warmup_steps: found no "),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_task_is_one_line(suite, tmp_path, changes, expected):
    run = run_of(suite, "qsr", "two_processes", "parallel", "smoke")
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(run.to_yaml()) | {"batch_size": 128} | changes))
    with pytest.raises(ConfigError) as caught:
        Run.from_file(file)
    assert any(f": {expected}" in line for line in caught.value.lines), caught.value.lines


def test_smoke_runs_are_small(suite):
    """So that all of them take minutes: at most a second of gradients each, of a few samples and tiny models."""
    runs = [run for paper in suite.papers for run in suite.runs(paper, "smoke")]
    for run in runs:
        assert run.device == "cpu", run.id
        if run.search:  # a search takes thousands of steps, of which a second has more than ten thousand
            assert run.workers <= 8, run.id
            continue
        assert run.data.name in ("digits", "sentences", "sonnets"), run.id
        assert run.workers * run.total_steps <= 8 * 330, run.id
        assert run.model.name in ("mlp", "cnn", "linear") or run.workers * run.total_steps <= 32 * 20, run.id


def test_no_two_rows_of_a_figure_or_table_are_the_same_run_at_smoke_scale(suite):
    """But for a training that the notebook of Liu et al. 2024 repeats."""
    not_compared = *Execution.model_fields, "paper", "experiment", "series"
    repeated = {"toy/sync_sgd_first", "toy/sync_sgd_second"}
    for paper, item in ((paper, item) for paper, found in suite.papers.items() for item in found.items):
        runs = suite.item_runs(paper, item, "smoke")
        same = [(str(run.model_dump(exclude=not_compared)), f"{run.experiment}/{run.series}") for run in runs]
        settings = [settings for settings, name in same if name not in repeated]
        assert len(settings) == len(set(settings)), (paper, item)


def test_a_paper_takes_at_most_an_hour_of_one_gpu_at_gpu_scale(suite):
    for paper in suite.papers:
        runs = suite.runs(paper, "gpu")
        assert all((run.processes, run.resources.nodes, run.resources.gpus_per_node) == (1, 1, 1) for run in runs)
        assert sum(run.resources.minutes for run in runs) <= 60
    shown = {*suite.items("local_sgd", "gpu"), *suite.items("slowmo", "gpu"), *suite.items("qsr", "gpu")}
    assert {"fig1a", "fig2", "fig3a", "fig7_resnet56", "fig7_vgg16", "table1_cifar10", "fig5", "table1b"} <= shown


def test_long_trainings_at_gpu_scale_have_the_published_models_workers_and_epochs(suite):
    """Those with label noise have no published length; SlowMo's and Local SGD's others do."""
    for paper, experiment in (("local_sgd", "cifar10_post_local"), ("slowmo", "cifar10_resnet18")):
        for run in suite.runs(paper, "gpu", experiment):
            published = run_of(suite, paper, experiment, run.series)
            for setting in ("data", "model", "workers", "batch_size", "total_steps", "sync", "schedule", "optimizer"):
                assert getattr(run, setting) == getattr(published, setting), f"{run.id}: {setting}"


def test_each_method_runs_in_several_processes_at_smoke_scale(suite):
    runs = [run for paper in suite.papers for run in suite.runs(paper, "smoke")]
    several = {run.sync.name for run in runs if run.processes > 1}
    assert several == {run.sync.name for run in runs if not run.search}


@pytest.mark.parametrize("scale", ["smoke", "paper"])
def test_every_item_is_drawn_with_all_of_its_series(suite, scale):
    for paper in suite.papers.values():
        small = {name for name, experiment in paper.experiments.items() if tuple(experiment.scales) == ("mini",)}
        names = [name for name, item in paper.items.items() if not small & {each.split("/")[0] for each in item.series}]
        assert suite.items(paper.id, scale) == names
        for item in names:
            published, shown = (paper.series_of(item, at) for at in ("paper", scale))
            alike = paper.items[item].options.of_paper_scale
            assert shown == (() if alike and scale != "paper" else published)
            runs = suite.item_runs(paper.id, item, scale)
            assert {(run.experiment, run.series) for run in runs} == set(shown)


def test_what_needs_no_run_exists_at_every_scale(suite):
    """Of published settings where the scale has no series of its own."""
    for paper in suite.papers.values():
        for item in paper.items.values():
            if item.options.planned or item.options.of_paper_scale:
                assert all(item.id in suite.items(paper.id, scale) for scale in suite.scales)
    assert {run.scale for run in suite.item_runs("qsr", "h_resnet", "mini")} == {"paper"}
    assert {run.scale for run in suite.item_runs("qsr", "h_vit", "mini")} == {"mini"}
    assert suite.item_runs("sgp", "time_per_iteration", "mini") == []


def test_every_given_record_is_a_published_value_with_its_steps_and_its_rate(suite):
    """All that the authors logged; a run at paper scale searches each of them."""
    values = [value for value in suite.papers["gossip_quadratics"].published if value.item == "records"]
    assert len(values) == 1632
    assert {value.status for value in values} == {"verified"}
    found = {(value.experiment, value.series, value.at_workers, value.seed, value.metric): value for value in values}
    assert len(found) == len(values)
    example = "gradients_strong", "relay_gradients_tree", 64
    assert all(value.rate for value in values)
    assert found[*example, 3, "tuned_steps"].tolerance == 0.02 * found[*example, 3, "tuned_steps"].value
    assert {run.seed for run in suite.runs("gossip_quadratics", "paper")} == set(range(10))


def test_published_times_rest_on_the_baselines_that_were_timed(suite):
    """Sheets on SGP (sections 1, 3 and 8), SlowMo (section 1) and QSR (its parallel optimizer averages afterwards)."""
    ethernet = [run.sync for run in suite.runs("sgp", "paper", experiment="resnet50_ethernet")]
    averages = [run.sync for run in suite.runs("sgp", "paper", experiment="transformer")] + ethernet
    found = {(sync.average, sync.all_reduce) for sync in averages if sync.name == "allreduce"}
    assert found == {("parameters", "recursive_doubling")}
    assert {sync.half_duplex for sync in ethernet if sync.name == "dpsgd"} == {True}
    double = run_of(suite, "slowmo", "imagenet_resnet50", "sgp_double_averaging")
    assert (
        volume(double).volume_percent == 2 * volume(run_of(suite, "slowmo", "imagenet_resnet50", "sgp")).volume_percent
    )
    tables = [item for item in suite.papers["qsr"].items if item.startswith("table4")]
    timed = [run_of(suite, "qsr", *pair) for item in tables for pair in suite.papers["qsr"].series_of(item, "paper")]
    parallel = [run for run in timed if run.sync.name == "allreduce"]
    assert len(parallel) == len(tables)
    assert {run.engine.name for run in parallel} == {"serial"}


def test_only_what_was_read_counts_as_verified(suite):
    """The verified numbers of the fact sheets on the declared series, all of them and no other."""
    verified = {
        (paper, value.series, value.metric, f"{value.bound} {value.value}" if value.bound else value.value)
        for paper in set(suite.papers) - {"slowmo"}
        for value in suite.papers[paper].published
        if value.status == "verified" and value.seed is None and value.at_epoch is None and value.series
    }
    of_tables = [value.id.split("_")[:2] for paper in suite.papers.values() for value in paper.published if value.of]
    assert Counter(name for name, table in of_tables if table != "text") == {
        "diloco": 27, "async": 62, "noloco": 54, "streaming": 68,
    }  # fmt: skip
    assert verified == {
        ("ddp_tricks", "with_defect", "best_val_top1", 99.05),
        ("ddp_tricks", "with_defect", "val_top1", 99.02),
        ("ddp_tricks", "with_defect", "val_loss", 0.0435),
        ("ddp_tricks", "with_defect", "train_loss", 0.0375),
        ("outer_optimizers", "nanogpt", "val_loss_estimate", 1.88),
        ("outer_optimizers", "nanogpt", "best_val_loss_estimate", 1.4697),
        ("qsr", "h4", "val_top1", 79.32),
        ("qsr", "qsr_h4", "val_top1", 80.98),
        ("qsr", "parallel", "training_hours", 26.7),
        ("qsr", "qsr_h4", "training_hours", 20.2),
        ("qsr", "parallel", "training_hours", 8.6),
        ("qsr", "qsr_h4", "training_hours", 5.5),
        ("qsr", "qsr_h4", "val_top1", 1.16),
        ("qsr", "qsr_h4", "val_top1", 1.12),
        ("qsr", "qsr_h4", "val_top1", 0.84),
        ("sgp", "ar_32", "training_hours", "lower 5.0"),
        ("sgp", "sgp_32", "training_hours", 1.6),
        ("sgp", "ar_32", "worker_val_top1_mean", "upper 1.2"),
        ("sgp", "sgp_4", "seconds_per_step", 0.886),
    }
    assert {value.status for value in suite.papers["slowmo"].published} == {"verified", "missing", "derived"}
    unsure = [value for paper in suite.papers.values() for value in paper.published if value.std is not None]
    assert {value.status for value in unsure} == {"unverified", "measured"}


def test_sgp_is_compared_by_the_nodes_own_models_where_the_published_settings_are(suite):
    sgp = suite.papers["sgp"]
    own = {"worker_val_top1_mean", "worker_val_loss_mean"}
    assert {value.metric for value in sgp.published if "val" in value.metric} == own
    assert {
        claim.metric for claim in sgp.claims_at("paper") if "paper" in claim.scales and "val" in claim.metric
    } == own
    assert sgp.claims_at("mini") == sgp.claims
    assert not own & {claim.metric for claim in sgp.claims}
    assert sgp.item_at("table1", "paper").options.metrics[0] == "worker_val_top1_mean"
    assert sgp.item_at("transformer", "paper").options.curves == ("worker_val_loss_mean",)
    assert sgp.item_at("table1", "mini") == sgp.items["table1"]
    beside = {value.id: value.metric for value in sgp.published_beside("mini")}
    assert beside["sgp_4_top1"] == "val_top1"  # in the row of the average of the models, as published at paper scale


def test_slowmo_is_compared_by_the_bleu_of_its_time_and_its_small_losses_are_told_apart(suite):
    slowmo = suite.papers["slowmo"]
    bleu = [value for value in slowmo.published if value.unit == "BLEU"]
    assert {(value.metric, value.tolerance) for value in bleu} == {("best_test_bleu_tokenised", None)}
    assert {claim.metric for claim in slowmo.claims_at("paper") if claim.unit == "BLEU"} == {"best_test_bleu_tokenised"}
    losses = [value for value in slowmo.published if value.id.startswith("cifar10_") and value.unit == "nats"]
    for one in losses:
        others = {other.value for other in losses} - {one.value}
        assert one.tolerance <= min(abs(one.value - other) for other in others) + 1e-9


def test_figure_2_of_slowmo_shades_between_the_nodes_where_they_are_evaluated(suite):
    slowmo = suite.papers["slowmo"]
    for figure in ("fig2_cifar10", "fig2_imagenet"):
        means = [f"worker_val_top1_{each}" for each in ("mean", "min", "max")]
        assert list(slowmo.item_at(figure, "paper").options.curves) == means
    assert slowmo.item_at("fig2_cifar10", "mini").options.curves == ("val_top1",)
    units = [
        suite.papers[paper].items[item].options.unit
        for paper, item in (("slowmo", "fig2_wmt16"), ("sgp", "transformer"))
    ]
    assert units == ["bits", "bits"]


def test_computed_and_printed_volume_are_two_values(suite):
    values = {
        (value.value, value.status)
        for value in suite.papers["qsr"].published
        if (value.experiment, value.series, value.metric) == ("vit_b16_b4096", "qsr_h4", "volume_percent")
    }
    assert values == {(10.375, "derived"), (10.4, "unverified")}


DEEPSPEED = {"engine": {"name": "deepspeed"}}
SLOW_MOMENTUM = {"name": "slowmo", "base": "allreduce", "period": {"rule": "constant", "h": 4}}
MATRICES = {"name": "sgd", "decay": "matrices"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"engine": {"zero_stage": 1}}, "engine.zero_stage: found 1 with engine auto"),
        (DEEPSPEED | {"processes": 1}, "engine.name: found deepspeed with 8 workers on 1 processes"),
        ({"engine": {"name": "ddp"}, "sync": {"name": "sgp"}, "processes": 8}, "engine.name: found ddp with sync sgp"),
        ({"engine": {"name": "ddp"}, "sync": {"name": "allreduce", "average": "parameters"}, "processes": 8},
         "engine.name: found ddp with sync allreduce"),
        (DEEPSPEED | {"sync": {"name": "allreduce", "all_reduce": "ring"}, "processes": 8},
         "engine.name: found deepspeed with sync allreduce"),
        (DEEPSPEED | {"sync": SLOW_MOMENTUM, "processes": 8}, "engine.name: found deepspeed with sync slowmo"),
        (DEEPSPEED | {"processes": 8, "optimizer": MATRICES | {"weight_decay": 0.1}},
         "optimizer.decay: found matrices, allowed with engine deepspeed: all"),
        ({"sync": {"name": "dpsgd", "topology": "complete", "half_duplex": True}},
         "sync.half_duplex: found true with topology complete"),
        ({"workers": 4, "gpus_per_worker": 2, "processes": 8, "sync": {"name": "adpsgd", "asynchronous": True}},
         "processes: found 8 with this sync adpsgd, which has one process for all GPUs of a worker"),
        ({"optimizer": MATRICES}, "optimizer.decay: found matrices without weight_decay"),
    ],
)  # fmt: skip
def test_options_that_do_not_go_together_are_one_line(suite, tmp_path, changes, expected):
    run = run_of(suite, "qsr", "two_processes", "parallel", "smoke")
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(run.to_yaml()) | changes))
    with pytest.raises(ConfigError) as caught:
        Run.from_file(file)
    [line] = caught.value.lines
    assert f": {expected}" in line


def test_pairs_and_fragments_have_the_settings_of_their_papers(suite):
    """NoLoCo's H and momenta, and each with the other's; Streaming DiLoCo's outer rate, delay and first average."""
    runs = {run.series: run for run in suite.runs("outer_optimizers", "mini", "pairs")}
    pairs = {name: run.sync for name, run in runs.items() if run.sync.name != "allreduce"}
    assert {name: (sync.name, sync.rule.h, sync.lr, sync.momentum) for name, sync in pairs.items()} == {
        f"{name}_h{h}": (name, h, 0.7, momentum)
        for h, momentum in ((50, 0.5), (100, 0.3))
        for name in ("noloco", "diloco")
    }
    assert {sync.nesterov for sync in pairs.values() if sync.name == "diloco"} == {False}
    assert {run.schedule.peak for run in runs.values()} == {1.6e-2}
    fragments = [run.sync for run in suite.runs("outer_optimizers", "mini", "fragments") if "k" in run.series]
    assert {(sync.lr, sync.delay, sync.first) for sync in fragments} == {(0.4, 1, "period")}


def test_the_grids_of_outer_optimizers_are_the_pilots_of_the_same_algorithm(suite):
    run_at = {(run.experiment, run.series): run for run in suite.runs("outer_optimizers", "mini")}
    grid = suite.papers["outer_optimizers"].experiments["grid"].tuned.grid
    assert list(grid) == ["base", "average_k8_h20", "outer_k1_h20", "outer_k1_h20_gain1", "both_k8_h20"]
    for series, listed in grid.items():
        ours, pilots = run_at["grid", series], [run_at["pilot", name.removeprefix("pilot/")] for name in listed]
        assert {(run.sync, run.workers) for run in pilots} == {(ours.sync, ours.workers)}
        assert ours.schedule.peak in [run.schedule.peak for run in pilots]


def test_claims_are_of_what_the_paper_says(suite):
    """No accuracy is claimed at smoke scale: digits show no order; verified ones are those of the fact sheets."""
    claims = {(paper, claim.id): claim for paper in suite.papers for claim in suite.papers[paper].claims}
    verified = {key for key, claim in claims.items() if claim.status == "verified"}
    of_code_and_logs = {key for key in verified if key[0] == "outer_optimizers"}  # whose sheet names code, not papers
    assert verified - of_code_and_logs == {
        ("qsr", "vit_qsr_h4_accuracy"),
        ("qsr", "vit_qsr_h4_over_parallel"),
        ("qsr", "vit64_qsr_over_parallel"),
        ("local_sgd", "cifar10_helps"),
        ("local_sgd", "small_lr_is_needed"),
        ("local_sgd", "long_training_is_needed"),
        *(("local_sgd", f"fitted_{name}") for name in ("helps", "short_training", "large_lr")),
        ("sgp", "sgp_4_accuracy"),
        ("sgp", "sgp_8_accuracy"),
        ("sgp", "sgp_32_accuracy"),
        ("sgp", "sgp_16_over_dpsgd"),
        ("sgp", "sgp_32_over_dpsgd"),
        ("sgp", "sgp_32_faster_than_dpsgd"),
        ("sgp", "sgp_16_faster_than_adpsgd"),
        *(("slowmo", claim.id) for claim in suite.papers["slowmo"].claims if "paper" in claim.scales),
    } - {("slowmo", "imagenet_double_averaging_time")}  # by less than published
    assert all(paper.claims for paper in suite.papers.values())
    assert all(claim.is_exact for claim in claims.values() if "smoke" in claim.scales)


def test_claims_on_volumes_follow_from_the_declared_schedules(suite, tmp_path):
    for scale in ("smoke", "paper"):
        rows = [row for row in audit(suite, scale, tmp_path).claims if row.test == "exact"]
        assert {row.because for row in rows} <= {"arithmetic", "another scale", "not comparable"}
    assert [(row.verdict, row.because) for row in rows] == [("untested", "arithmetic")] * 7


def test_graphs_average_as_published(suite, tmp_path):
    """0, 0.2, 0.4 and 0.6 of the squared deviations are left by the graphs of the appendix; the figure shows both."""
    rows = [row for row in audit(suite, "smoke", tmp_path, ["sgp"]).rows if row.metric == "averaging_error"]
    assert [(row.verdict, row.because) for row in rows] == [("untested", "arithmetic")] * 4
    errors = averaging_error.prepare(load(suite, "sgp", "averaging_error", "paper", tmp_path))
    assert [(len(line.y), line.y[0]) for line in errors.lines] == [(11, 1.0)] * 4
    assert all(line.y[mixes] == pytest.approx(value, abs=0.05)
               for line, (_, mixes, value) in zip(errors.lines, errors.published, strict=True))  # fmt: skip
    style.encode(averaging_error.draw(errors, style.COLUMN))

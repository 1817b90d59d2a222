"""What the fact sheets of the papers list, and under which name the configurations declare it."""

from pathlib import Path

import pytest

from resync.formulas.periods import Constant
from resync.plan import volume
from resync.plan.exchanges import round_lengths

CONFIGS = Path(__file__).parents[2] / "paper_configs"

# The figures and tables that a paper's sheet lists. What the paper has and these lack is in MISSING.
ITEMS = {
    "sgp":
        "accuracy_nodes accuracy_epochs_time time_per_iteration accuracy_infiniband infiniband table1 "
        "accuracy_asynchronous asynchronous accuracy_peers peers accuracy_270_epochs long transformer "
        "transformer_losses averaging_error training_error deviation",
    "slowmo":
        "table1_cifar10 table1_imagenet table1_wmt16 table2_imagenet table2_wmt16 fig2_cifar10 fig2_imagenet "
        "fig2_wmt16 fig3_imagenet fig3_wmt16",
    "local_sgd":
        "fig1a fig1b fig2 fig2_h fig2_h_imagenet fig2_endings fig3a fig7_resnet56 fig7_vgg16 starts sharpness "
        "sharpness_label_noise slow_sde",
    "qsr":
        "fig5 h_vit h_resnet h_rules table1a table1b table2a table2b table3_step table3_linear table4a table4b "
        "table4c table4d rules rules_curves rules_resnet resnet50",
    "outer_optimizers": "nanogpt_curves nanogpt nanogpt_gpu methods periods constant_lr averaging consensus grid",
    "ddp_tricks": "tricks endings guide guide_endings",
}  # fmt: skip
SERIES = {
    "sgp": {
        "resnet50_ethernet": [f"{method}_{nodes}" for method in ("ar", "dpsgd", "sgp") for nodes in (4, 8, 16, 32)],
        "resnet50_infiniband": [f"{method}_{nodes}" for method in ("ar", "dpsgd", "sgp") for nodes in (4, 8, 16, 32)],
        "resnet50_asynchronous": [
            *(f"{name}_{n}" for name in ("osgp", "biased_osgp", "adpsgd") for n in (16, 32)),
            "late_osgp_16",
        ],
        "resnet50_peers": ["sgp_1_peer", "sgp_2_peers", "ar_then_sgp", "sgp_2_then_1"],
        "resnet50_270_epochs": ["sgp_32", "osgp_32"],
        "graphs": ["exponential", "random", "random_exponential", "cycle"],
        "transformer": ["ar_25k", "sgp_25k", "ar_400k", "sgp_400k"],
    },
    "slowmo": {
        "cifar10_resnet18": [
            "ar", "ar_slowmo", "local", "local_slowmo", "osgp", "osgp_slowmo", "sgp", "sgp_slowmo"
        ],
        "imagenet_resnet50": [
            "ar", "local", "local_slowmo", "osgp", "osgp_slowmo", "sgp", "sgp_slowmo", "sgp_slowmo_tau12",
            "sgp_slowmo_tau24", "sgp_slowmo_tau96", "sgp_slowmo_no_average", "local_double_averaging",
            "sgp_double_averaging",
        ],
        "wmt16_transformer": [
            "ar", "local", "local_slowmo", "sgp", "sgp_slowmo", "sgp_slowmo_tau12", "sgp_slowmo_tau96",
            "sgp_slowmo_tau192", "sgp_slowmo_no_average",
        ],
    },
    "local_sgd": {
        "cifar10_phase1": ["parallel"],
        "cifar10_post_local": ["parallel", "h12", "h60", "h300", "local"],
        "cifar10_ablations": [
            "parallel_large_lr", "local_large_lr", "one_average", "parallel_from_random", "local_from_random"
        ],
        "cifar10_diffusion_start": ["sgd"],
        "cifar10_diffusion": ["parallel", "local_k2", "local_k8", "local", "local_k64"],
        "label_noise_start": ["resnet56", "vgg16"],
        "label_noise_resnet56": ["parallel", "h12", "h96", "local"],
        "label_noise_vgg16": ["parallel", "h12", "h96", "local"],
        "imagenet_phase1": ["parallel"],
        "imagenet_post_local": ["parallel", "h5", "h13", "local"],
    },
    "qsr": {
        "resnet152_b4096": ["parallel", "h2", "qsr_h2", "h4", "qsr_h4"],
        "resnet152_b16384": ["parallel", "h2", "qsr_h2", "h4", "qsr_h4"],
        "resnet152_b4096_step": ["parallel", "h2", "qsr_h2", "h4", "qsr_h4"],
        "resnet152_b4096_rules": ["linear", "cubic", "post_local", "swap"],
        "resnet50_b4096": ["parallel", "h2", "qsr_h2"],
        "vit_b16_b4096": ["parallel", "h4", "qsr_h4", "h8", "qsr_h8"],
        "vit_b16_b16384": ["parallel", "h4", "qsr_h4", "h8", "qsr_h8"],
        "vit_b16_b4096_linear": ["parallel", "h4", "qsr_h4", "h8", "qsr_h8"],
        "vit_b16_b4096_continued": ["qsr_h4"],
        "vit_b16_b4096_rules": ["linear", "cubic", "post_local", "swap"],
    },
    "outer_optimizers": {
        "nanogpt_cpu": ["nanogpt"],
        "nanogpt_gpu": ["nanogpt"],
        "grid": [
            "base", "base_smaller_lr",
            *(f"outer_k1_h{h}" for h in (5, 20, 100)),
            *(f"{what}_k{k}_h{h}" for k in (2, 8) for what in ("average", "both") for h in (5, 20, 100)),
            "outer_k1_h20_gain1", "both_k2_h20_gain1", "both_k8_h20_gain1",
        ],
        "constant_lr": [
            "base",
            *(f"outer_k1_h{h}" for h in (20, 100, 500)),
            "average_k2_h20",
            *(f"both_k2_h{h}" for h in (20, 100, 500)),
        ],
        "methods": [
            "allreduce", "lookahead", "slowmo", "snoo", "gpa", "palsgd", "streaming_diloco", "desloc", "noloco", "muon",
            "muloco_k1", "muloco",
        ],
        "periods": ["qsr", "qsr_outer", "qsr_corrected"],
        "topologies": [
            "ring", "bipartite_exponential", "base_graph", "u_equistatic", "ou_equidyn", "random_matching",
        ],
    },
    "ddp_tricks": {
        "mnist": [
            "all_tricks", "no_lookahead", "no_warmup", "no_clipping", "no_plateau", "cosine", "bf16", "fp32", "none",
            "gpus_1", "gpus_2",
        ],
        "guide": ["with_defect", "without_defect"],
    },
}  # fmt: skip


@pytest.mark.parametrize("paper", ITEMS)
def test_every_item_is_declared_and_no_other(suite, paper):
    assert sorted(suite.items(paper, "paper")) == sorted(ITEMS[paper].split())


@pytest.mark.parametrize("paper", SERIES)
def test_every_series_is_declared_and_no_other(suite, paper):
    experiments = suite.papers[paper].experiments.values()
    found = {experiment.id: experiment.scales["paper"] for experiment in experiments if "paper" in experiment.scales}
    assert {name: list(series) for name, series in found.items()} == SERIES[paper]


@pytest.mark.parametrize("paper", ["sgp", "slowmo", "local_sgd", "qsr"])
def test_every_series_of_a_table_or_figure_has_a_published_value_or_a_place_for_it(suite, paper):
    """But a training that no number is known of to exist, and the plots of H, which are computed."""
    unpublished = {
        ("sgp", "resnet50_asynchronous", "late_osgp_16"),
        ("slowmo", "cifar10_resnet18", "ar_slowmo"),
        ("local_sgd", "imagenet_phase1", "parallel"),
        ("qsr", "vit_b16_b4096_continued", "qsr_h4"),
    }
    declared = {(paper, experiment, series) for experiment, names in SERIES[paper].items() for series in names}
    known = {(paper, value.experiment, value.series) for value in suite.papers[paper].published}
    assert declared - known == {entry for entry in unpublished if entry[0] == paper}


# What a run of a series is at paper scale: K, W, batch, epochs, steps, lr, weight decay, decay of matrices only.
GOLDEN = {
    "sgp/resnet50_ethernet/dpsgd_16": (16, 128, 4096, 90, 90 * 313, 1.6, 1e-4, False),
    "sgp/resnet50_infiniband/sgp_4": (4, 32, 1024, 90, 90 * 1252, 0.4, 1e-4, False),
    "sgp/resnet50_asynchronous/adpsgd_32": (32, 32, 8192, 90, 90 * 157, 3.2, 1e-4, False),
    "sgp/resnet50_270_epochs/osgp_32": (32, 256, 8192, 270, 270 * 157, 3.2, 1e-4, False),
    "slowmo/cifar10_resnet18/sgp_slowmo": (32, 32, 4096, 200, 200 * 12, 1.6, 1e-4, False),
    "slowmo/imagenet_resnet50/local_slowmo": (32, 256, 8192, 90, 90 * 157, 3.2, 1e-4, False),
    "local_sgd/cifar10_phase1/parallel": (32, 4, 4096, 250, 3000, 3.2, 5e-4, True),
    "local_sgd/cifar10_post_local/local": (32, 4, 4096, 250, 3000, 0.32, 5e-4, True),
    "local_sgd/cifar10_diffusion_start/sgd": (1, 1, 128, 250, 250 * 390, 0.1, 5e-4, True),
    "local_sgd/label_noise_resnet56/local": (32, 4, 4096, 320, 3840, 0.1, 5e-4, True),
    "local_sgd/label_noise_vgg16/local": (32, 4, 4096, 320, 3840, 0.1, 0.0, False),
    "local_sgd/imagenet_phase1/parallel": (256, 4, 8192, 100, 15_600, 16.0, 1e-4, True),
    "local_sgd/imagenet_post_local/local": (256, 4, 8192, 50, 7800, 0.16, 1e-4, True),
    "qsr/resnet152_b4096/qsr_h2": (16, 16, 4096, 200, 62_400, 0.8, 1e-4, False),
    "qsr/resnet152_b16384/qsr_h4": (64, 64, 16384, 200, 15_600, 1.6, 1e-4, False),
    "qsr/vit_b16_b4096/parallel": (16, 16, 4096, 300, 93_600, 0.008, 0.1, False),
    "qsr/vit_b16_b16384/qsr_h8": (64, 64, 16384, 300, 23_400, 0.016, 0.05, False),
    "ddp_tricks/mnist/all_tricks": (4, 4, 4096, 500, 500 * 15, 0.1, 0.0, False),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_settings_are_those_of_the_sheet(suite, name):
    run = run_of(suite, name)
    lr = run.schedule.lr if run.schedule.name == "constant" else run.schedule.max_lr
    size = (run.workers, run.processes, run.batch_size, run.epochs, run.total_steps)
    decay = (run.optimizer.weight_decay, run.optimizer.decay == "matrices")
    assert (*size, lr, *decay) == GOLDEN[name]


def test_models_see_the_batches_that_the_papers_batch_norm_saw(suite):
    with_batch_norm = {"sgp": 32, "qsr": 32, "slowmo": {"cifar10": 128, "imagenet1k": 32}}
    for paper, size in with_batch_norm.items():
        for run in suite.runs(paper, "paper"):
            if run.model.name == "resnet":
                assert run.forward_batch_size == (size if isinstance(size, int) else size[run.data.name]), run.id


def test_local_sgd_continues_where_the_paper_does(suite):
    starts = {
        f"{run.experiment}/{run.series}": run.start_from for run in suite.runs("local_sgd", "paper") if run.seed == 0
    }
    random = {"cifar10_ablations/parallel_from_random", "cifar10_ablations/local_from_random"}
    expected = {
        "cifar10_post_local": "cifar10_phase1/parallel",
        "cifar10_ablations": "cifar10_phase1/parallel",
        "cifar10_diffusion": "cifar10_diffusion_start/sgd",
        "label_noise_vgg16": "label_noise_start/vgg16",
        "imagenet_post_local": "imagenet_phase1/parallel",
    }
    assert {name: start.rsplit("/", 1)[0] for name, start in starts.items() if start} == {
        f"{experiment}/{series}": start
        for experiment, start in expected.items()
        for series in SERIES["local_sgd"][experiment]
        if f"{experiment}/{series}" not in random
    }
    checkpoints = {run.experiment: run.start_checkpoint for run in suite.runs("local_sgd", "paper")}
    assert {name: file for name, file in checkpoints.items() if file} == {
        "label_noise_resnet56": "local-sgd/resnet_common_start.pt"
    }


def test_local_sgd_sweeps_the_period_and_the_workers(suite):
    """Rounds fill the training, which has as many steps for every number of workers."""
    periods = {}
    for run in suite.runs("local_sgd", "paper"):
        if run.sync.name == "local":
            periods.setdefault(run.experiment, {})[run.sync.period.h] = run.total_steps
    assert {name: list(found) for name, found in periods.items()} == {
        "cifar10_post_local": [12, 60, 300, 600],
        "cifar10_ablations": [600, 3000],
        "cifar10_diffusion": [600],
        "label_noise_resnet56": [12, 96, 384],
        "label_noise_vgg16": [12, 96, 384],
        "imagenet_post_local": [5, 13, 26],
    }
    assert all(steps % h == 0 for found in periods.values() for h, steps in found.items())
    sweep = suite.runs("local_sgd", "paper", "cifar10_diffusion")
    sizes = {run.workers: (run.local_batch_size, run.total_steps, run.schedule.lr) for run in sweep}
    assert sizes == dict.fromkeys((32, 2, 8, 64), (128, 3000, 0.32))


def test_slow_momentum_averages_as_often_as_published(suite):
    runs = {f"{run.data.name}/{run.series}": run.sync for run in suite.runs("slowmo", "paper")}
    slow = {name: sync for name, sync in runs.items() if sync.name == "slowmo"}
    kept = {name for name, sync in slow.items() if sync.buffers == "keep"}
    assert {sync.alpha for sync in slow.values()} == {1}
    beta = {name: sync.beta for name, sync in slow.items()}
    assert {name for name, value in beta.items() if value == 0.5} == {
        name for name in slow if name.startswith("wmt16") and not name.endswith("no_average")
    }
    assert set(beta.values()) == {0.5, 0.6}
    assert kept == {name for name in slow if name.startswith("wmt16")}
    assert {sync.buffers for name, sync in slow.items() if name not in kept} == {"zero"}
    assert {name: sync.period.h for name, sync in slow.items() if name.startswith("imagenet")} == {
        "imagenet1k/local_slowmo": 12,
        "imagenet1k/osgp_slowmo": 48,
        "imagenet1k/sgp_slowmo": 48,
        "imagenet1k/sgp_slowmo_tau12": 12,
        "imagenet1k/sgp_slowmo_tau24": 24,
        "imagenet1k/sgp_slowmo_tau96": 96,
        "imagenet1k/sgp_slowmo_no_average": 48,
    }
    assert {sync.period.h for name, sync in slow.items() if name.startswith("cifar10")} == {12}
    sweep = ("sgp_slowmo_tau12", "sgp_slowmo", "sgp_slowmo_tau96", "sgp_slowmo_tau192")
    assert [slow[f"wmt16_en_de/{name}"].period.h for name in sweep] == [12, 48, 96, 192]


def test_all_volumes_of_qsr_follow_from_the_configuration(suite):
    printed = [value for value in suite.papers["qsr"].published if value.metric == "volume_percent" and value.value]
    assert len(printed) == 29
    computed = {value.id: volume(run_of(suite, f"qsr/{value.experiment}/{value.series}")) for value in printed}
    wrong = {
        value.id: (value.value, computed[value.id].volume_percent)
        for value in printed
        if abs(computed[value.id].volume_percent - value.value) > 0.05
    }
    assert wrong == {}


@pytest.mark.parametrize(("model", "percent"), [("vit_b16", 10.375), ("resnet152", 39.731)])
def test_other_rules_than_qsr_communicate_as_much(suite, model, percent):
    volumes = {
        series: volume(run_of(suite, f"qsr/{model}_b4096_rules/{series}")).volume_percent
        for series in ("linear", "cubic", "swap")
    }
    assert volumes == pytest.approx(dict.fromkeys(volumes, percent), abs=0.005)


def run_of(suite, name):
    """A run of `paper/experiment/series` at paper scale."""
    paper, experiment, series = name.split("/")
    return suite.runs(paper, "paper", experiment, series)[0]


def test_the_authors_own_qsr_run_has_the_rounds_of_qsr_in_one_run(suite):
    """Constant H = 4 up to step 12,480, and QSR from there, whose H leaves 4 at step 17,876 only."""
    own, whole = (run_of(suite, f"qsr/{name}/qsr_h4") for name in ("vit_b16_b4096_continued", "vit_b16_b4096"))
    assert (own.start_from, own.start_state) == ("vit_b16_b4096/h4/seed0@step12480", "all")
    assert own.continued.sync.rule == Constant(h=4)
    assert round_lengths(own) == round_lengths(whole)
    assert len(round_lengths(own)) == 9_711

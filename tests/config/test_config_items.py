"""What the fact sheets of the papers list, and under which name the configurations declare it."""

from pathlib import Path

import pytest

from resync.papers.plan import volume
from resync.runs.exchanges import round_lengths
from resync.workers.formulas.periods import Constant

CONFIGS = Path(__file__).parents[2] / "paper_configs"


SIZES = {
    "sgp": (17, 45), "slowmo": (10, 30), "local_sgd": (13, 32), "qsr": (18, 42), "outer_optimizers": (9, 51),
    "ddp_tricks": (4, 13),
}  # fmt: skip
"""How many figures and tables the sheet of a paper lists, and how many series it has at paper scale."""


def series_of(suite, paper):
    """`experiment`: the names of its series at paper scale."""
    experiments = suite.papers[paper].experiments.values()
    return {each.id: list(each.scales["paper"]) for each in experiments if "paper" in each.scales}


@pytest.mark.parametrize("paper", SIZES)
def test_every_item_and_series_is_declared(suite, paper):
    assert (len(suite.items(paper, "paper")), sum(map(len, series_of(suite, paper).values()))) == SIZES[paper]


@pytest.mark.parametrize("paper", ["sgp", "slowmo", "local_sgd", "qsr"])
def test_every_series_of_a_table_or_figure_has_a_published_value_or_a_place_for_it(suite, paper):
    """But a training that no number is known of to exist, and the plots of H, which are computed."""
    unpublished = {
        ("sgp", "resnet50_asynchronous", "late_osgp_16"),
        ("slowmo", "cifar10_resnet18", "ar_slowmo"),
        ("local_sgd", "imagenet_phase1", "parallel"),
        ("qsr", "vit_b16_b4096_continued", "qsr_h4"),
    }
    declared = {
        (paper, experiment, series) for experiment, names in series_of(suite, paper).items() for series in names
    }
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
        for series in series_of(suite, "local_sgd")[experiment]
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

"""Costs from configurations, without training and without torch."""

from dataclasses import replace
from pathlib import Path

import pytest

from resync.papers.paper import load_suite
from resync.papers.plan import Cost, cost, table, table_of_totals, totals
from resync.papers.plan.cost import in_a_sentence, in_units
from resync.papers.plan.forecast import with_expected_hours
from resync.papers.plan.rehearsed import Rates, shape_id
from resync.runs import exchanges
from resync.runs.run import Run
from resync.workers.formulas.periods import rounds

PAPER_CONFIGS = Path(__file__).parents[2] / "paper_configs"
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
        flops_per_sample=None,
        gpu_hours=0.0,
        disk_bytes=(2 * 16 * 3 + 1) * VIT_PARAMETERS * 4,  # two checkpoints with AdamW's two moments, and the model
    )
    assert found.volume_percent == 10.375
    assert found.bytes_per_worker == 9_711 * VIT_PARAMETERS * 4
    assert found.as_dict().items() >= {"volume_percent": 10.375, "rounds": 9_711}.items()


def test_the_limit_in_gpu_hours_is_that_of_all_nodes():
    [run, *_] = load_suite(PAPER_CONFIGS).runs("sgp", "paper", "resnet50_ethernet", "sgp_32")
    asked = run.resources
    assert (asked.nodes, asked.gpus_per_node, asked.minutes) == (32, 8, 24 * 60)
    assert cost(run, VIT_PARAMETERS).gpu_hours == 32 * 8 * 24


def test_epochs_of_a_schedule_are_steps_of_the_run():
    schedule = {"name": "step", "max_lr": 0.4, "warmup_epochs": 5.0, "decays": [[30.0, 0.1], [60.5, 0.5]]}
    lr = a_run(schedule=schedule, epochs=100, steps_per_epoch=10).lr
    expected = {0: 0.4 / 50, 49: 0.4, 299: 0.4, 300: 0.04, 604: 0.04, 605: 0.02}
    assert {step: lr(step) for step in expected} == pytest.approx(expected)


def test_table_has_an_aligned_line_for_each_run():
    costs = [cost(a_run(), VIT_PARAMETERS), cost(a_run(sync={"name": "allreduce"}, series="ar"), 10)]
    heading, first, second = table(costs).splitlines()
    assert heading.split()[:7] == ["run", "steps", "rounds", "volume", "%", "sent/worker", "samples"]
    assert first.split()[:7] == [costs[0].run, "93,600", "9,711", "10.375", "3.341", "TB", "23,961,600"]
    assert second.split()[:7] == [costs[1].run, "93,600", "93,600", "100.000", "3.744", "MB", "23,961,600"]
    assert len(heading) == len(first) == len(second)
    assert len(table([]).splitlines()) == 1


def test_totals_are_sums_over_experiments_and_papers():
    adamw = {"name": "adamw", "weight_decay": 0.1}
    runs = [a_run(), a_run(series="other"), a_run(experiment="second", optimizer=adamw)]
    costs = [cost(run, num_parameters=10, flops_per_sample=60) for run in runs]
    assert costs[0].flops == 60 * costs[0].samples
    assert costs[0].bytes_of_all == costs[0].bytes_per_worker * runs[0].workers
    first, second = totals(costs, "experiment")
    [paper] = totals(costs, "paper")
    assert (first.runs, second.runs, paper.runs) == (2, 1, 3)
    assert first.name == "/".join(runs[0].id.split("/")[:2])
    for name in ("samples", "bytes_of_all", "flops", "gpu_hours", "disk_bytes"):
        assert (
            getattr(paper, name)
            == getattr(first, name) + getattr(second, name)
            == sum(getattr(item, name) for item in costs)
        )
    # Two checkpoints of parameters and two moments of every worker, and the model.
    assert costs[2].disk_bytes == (2 * 3 * runs[2].workers + 1) * 40
    assert totals([*costs, cost(runs[0], 10)], "paper")[0].flops is None
    assert len(table_of_totals([first, second], "experiment").splitlines()) == 3


def test_seeds_share_the_lengths_of_their_rounds_and_nothing_else_does(monkeypatch: pytest.MonkeyPatch):
    asked: list[tuple] = []
    monkeypatch.setattr(exchanges, "rounds", lambda *of, first: asked.append(of) or rounds(*of, first=first))
    exchanges._rounds.cache_clear()
    lengths = [exchanges.round_lengths(a_run(seed=seed)) for seed in range(3)]
    assert lengths[0] == lengths[1] == lengths[2]
    assert len(asked) == 1
    shorter = exchanges.round_lengths(a_run(epochs=299))
    warmer = exchanges.round_lengths(
        a_run(schedule={"name": "cosine", "max_lr": 0.009, "min_lr": 1e-6, "warmup_steps": 10_000})
    )
    assert len({tuple(lengths[0]), tuple(shorter), tuple(warmer)}) == len(asked) == 3


def test_hours_are_expected_from_a_rehearsal_or_else_from_the_paper_or_else_from_the_archive():
    suite = load_suite(PAPER_CONFIGS, papers=["qsr"])
    runs = suite.runs("qsr", "paper", "vit_b16_b4096")
    costs = [cost(run, 10) for run in runs]
    rates = Rates(step=2.0, data=1.0, communication=0.0, overlaps=True, evaluation=None, checkpoint=0.0)
    published = {"qsr": suite.papers["qsr"].published}
    found = with_expected_hours(runs, costs, {shape_id(runs[0]): rates}, published)
    resources = runs[0].resources
    gpus = resources.nodes * resources.gpus_per_node
    assert gpus > 1
    by_series = {run.series: item for run, item in zip(runs, found, strict=True)}
    own, theirs, others = by_series[runs[0].series], by_series["qsr_h4"], by_series["qsr_h8"]
    assert own.expected_gpu_hours == pytest.approx(gpus * runs[0].total_steps * 3 / 3600)
    assert theirs.expected_gpu_hours == pytest.approx(gpus * 20.2)
    assert [item.rate_from for item in (own, theirs, others)] == [
        "rehearsal on noise", "published", "published of others"
    ]  # fmt: skip
    assert others.expected_hours == pytest.approx(26.7)  # of the parallel run, the longest
    archived = {f"qsr/{runs[0].experiment}/{runs[0].series}": 1.5}
    other = next(run for run in runs if run.series != runs[0].series)
    first, second = with_expected_hours([runs[0], other], costs[:2], {}, {"qsr": []}, archived)
    assert (first.expected_hours, first.expected_gpu_hours, first.rate_from) == (1.5, 1.5 * gpus, "archive")
    assert (second.expected_hours, second.rate_from) == (None, "")
    [known] = totals([own, theirs], "paper")
    assert known.expected_gpu_hours == own.expected_gpu_hours + theirs.expected_gpu_hours
    [part] = totals([own, second], "paper")
    assert (part.expected_hours, part.without_rate) == (own.expected_hours, 1)
    assert [known.rate_from, part.rate_from] == ["published, rehearsal on noise", "rehearsal on noise, 1 unknown"]
    assert in_a_sentence(part) == (
        "about 78 h of runs one after another, 1,248 GPU-hours (from rehearsal on noise, 1 unknown); "
        f"they keep {in_units(own.disk_bytes + second.disk_bytes, 'B')} on disk"
    )
    large = [replace(own, expected_gpu_hours=hours) for hours in (123456.7, 0.00001)]
    assert [digits in line for digits, line in zip(("123,457", "< 0.01"), table(large).splitlines()[1:], strict=True)]

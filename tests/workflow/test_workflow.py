"""The files of the papers, without Snakemake."""

import re
from pathlib import Path

import pytest

from resync.base.settings.errors import ConfigError
from resync.papers.paper.suite import Suite
from resync.tools.workflow import (
    RUN,
    Targets,
    chosen_scale,
    data_files,
    gpus_per_node,
    names_of_runs,
    one_item,
    srun_nodes,
    start_files,
    why_not_made,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def suite(papers: Suite) -> Suite:
    return papers


@pytest.fixture(scope="module")
def smoke(suite: Suite) -> Targets:
    return Targets(suite, "smoke")


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_a_run_is_found_by_its_directory(smoke: Targets):
    names = {"scale": "smoke", "paper": "qsr", "experiment": "vit_b16_b4096", "series": "h4", "seed": "1"}
    run = smoke.run(RUN.format(**names))
    assert run.id == "qsr/vit_b16_b4096/h4/seed1"
    with pytest.raises(ConfigError, match="paper_configs declares no run results/smoke/qsr/vit_b16_b4096/h4/seed9"):
        smoke.run(RUN.format(**names | {"seed": "9"}))


def test_published_logs_are_audited_at_their_scale(suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    declared = suite.papers["outer_optimizers"].logs
    paper, mini = Targets(suite, "paper"), Targets(suite, "mini")
    assert declared.model_dump_json() in paper.audited("outer_optimizers")
    monkeypatch.chdir(tmp_path)
    assert paper.published_logs("outer_optimizers") == []
    file = Path("results/logs/outer_optimizers/some_table.json")
    file.parent.mkdir(parents=True)
    file.touch()
    assert paper.published_logs("outer_optimizers") == [str(file)]
    assert paper.published_logs("qsr") == mini.published_logs("outer_optimizers") == []


def test_pilot_runs_are_trained_but_no_result_reads_them(suite: Suite):
    mini = Targets(suite, "mini")
    run = next(run for run in mini.pilots.values() if run.paper == "ddp_tricks")
    assert mini.run(f"results/{run.directory}") is run
    assert run.seed == 100
    assert f"results/{run.directory}/summary.json" in mini.pilot_files
    assert str(run.directory) not in set(map(str, mini.runs))
    assert not any("seed100" in file for file in mini.paper_files("ddp_tricks"))


def test_every_name_of_a_run_matches_its_pattern(suite: Suite):
    patterns = names_of_runs(suite)
    for scale in suite.scales:
        for run in Targets(suite, scale).runs.values():
            for name in ("scale", "paper", "experiment", "series", "seed", "hash"):
                assert re.fullmatch(patterns[name], str(getattr(run, name)))
    assert not re.fullmatch(patterns["paper"], "qsrs")


def test_a_figure_is_a_target_of_its_own_paper_only(suite: Suite):
    figures = one_item(suite, "figures")
    assert re.search(figures, "figures/smoke/qsr/fig5")
    assert not re.search(figures, "figures/smoke/sgp/fig5")
    assert not re.search(figures, "figures/smoke/qsr/table1a")
    assert re.search(one_item(suite, "tables"), "figures/smoke/qsr/table1a")
    assert not re.search(one_item(Suite({}, {}), "tables"), "figures/smoke/qsr/table1a")


def test_a_paper_names_its_results_and_items(smoke: Targets, suite: Suite):
    files = smoke.paper_files("qsr")
    [run] = suite.runs("qsr", "smoke", "two_processes", "h4")
    folder = "results/smoke/qsr/two_processes/h4/seed0"
    of_run = {f"{folder}/{name}" for name in (f"{run.hash}.hash", "metrics.csv", "steps.csv", "summary.json")}
    assert {file for file in files if file.startswith(folder)} == of_run
    assert {"results/smoke/qsr/audit.json", "results/smoke/qsr/collected.parquet"} <= set(files)
    assert {"figures/smoke/qsr/fig5.png", "figures/smoke/qsr/table1b.tex"} <= set(files)
    assert "figures/smoke/qsr/fig5.tex" not in files
    assert not any("table2a" in file for file in Targets(suite, "mini").paper_files("qsr"))


def test_a_paper_without_runs_at_a_scale_makes_nothing(suite: Suite):
    empty = Suite({"qsr": suite.papers["qsr"]}, {"qsr": ()})
    assert Targets(empty, "smoke").papers == []
    assert Targets(empty, "smoke").paper_files("qsr") == []


def test_an_item_reads_what_training_wrote_unless_its_kind_needs_none(smoke: Targets, suite: Suite):
    shown = suite.item_runs("qsr", "fig5", "smoke")
    assert smoke.item_results("qsr", "fig5")[:3] == [
        f"results/{shown[0].directory}/{name}" for name in ("metrics.csv", "steps.csv", "summary.json")
    ]
    assert len(smoke.item_results("qsr", "fig5")) == 3 * len(shown)
    assert smoke.item_results("qsr", "h_vit") == []
    with pytest.raises(ConfigError, match="qsr table2a has no runs at scale mini"):
        Targets(suite, "mini").item_results("qsr", "table2a")


def test_an_item_is_drawn_by_its_kind_and_what_kinds_share(smoke: Targets):
    files = smoke.item_code("qsr", "fig5")
    assert "src/resync/runs/results/seed_values.py" in files
    assert {"src/resync/papers/render/period_and_accuracy.py", "src/resync/papers/render/style.py"} <= set(files)
    assert {"src/resync/papers/plan/cost.py", "src/resync/workers/formulas/periods.py"} <= set(files)
    assert "src/resync/papers/render/accuracy_curves.py" not in files
    assert all(Path(file).is_file() for file in files)


def test_the_text_of_an_item_follows_its_title_its_runs_and_what_was_published(suite: Suite, smoke: Targets):
    paper = suite.papers["qsr"]
    before = smoke.item_text("qsr", "fig5")

    def text(item=paper.items["fig5"], published=paper.published, runs=suite.expanded["qsr"]) -> str:
        papers = {"qsr": paper.model_copy(update={"figures": (item,), "published": published})}
        return Targets(Suite(papers, {"qsr": runs}), "smoke").item_text("qsr", "fig5")

    assert text() == before
    assert text(item=paper.items["fig5"].model_copy(update={"title": "another"})) != before
    assert text(published=paper.published[1:]) != before
    assert text(runs=tuple(run.with_start(run) for run in suite.expanded["qsr"])) != before


def test_the_hashes_of_plan_and_site_follow_what_they_show(suite: Suite, smoke: Targets):
    paper, runs = suite.papers["qsr"], suite.expanded["qsr"]
    longer = [run.model_copy(update={"epochs": 31}) for run in runs]
    larger = [run.model_copy() for run in runs]
    for run in larger:
        run._resources = run.resources.model_copy(update={"minutes": 17})
    plans = {Targets(Suite({"qsr": paper}, {"qsr": tuple(each)}), "smoke").plan_hash for each in (runs, longer, larger)}
    assert len(plans) == 3
    renamed = Suite({"qsr": paper.model_copy(update={"title": "Another"})}, {"qsr": runs})
    assert Targets(renamed, "smoke").words_hash != Targets(Suite({"qsr": paper}, {"qsr": runs}), "smoke").words_hash


def test_what_runs_need_from_elsewhere(suite: Suite):
    def some(paper: str, scale: str, **wanted: object):
        runs = suite.runs(paper, scale)
        return next(run for run in runs if all(getattr(run, name) == value for name, value in wanted.items()))

    digits = some("qsr", "smoke")
    assert (data_files(digits), start_files(digits)) == ([], [])
    started = next(run for run in suite.runs("local_sgd", "smoke") if run.start_from)
    assert start_files(started) == [f"results/smoke/local_sgd/{started.start_from}/summary.json"]
    imagenet = suite.runs("qsr", "paper", "vit_b16_b4096", "h4")[0]
    [record] = data_files(imagenet)
    assert re.fullmatch(r"results/data/imagenet1k\.(ffcv|beton)\.json", record)
    assert (gpus_per_node(imagenet), srun_nodes(imagenet)) == ("gpu:8", 2)
    assert (gpus_per_node(digits), srun_nodes(digits)) == (None, None)
    nodes = suite.runs("slowmo", "paper", "imagenet_resnet50", "sgp")[0]
    assert (gpus_per_node(nodes), srun_nodes(nodes), nodes.processes) == ("gpu:8", 32, 256)
    cifar = next(run for run in suite.runs("local_sgd", "mini") if run.data.component.is_prepared)
    assert data_files(cifar)[0].startswith(f"results/data/{cifar.data.name}")


def test_the_scale_is_all_that_can_be_chosen(suite: Suite):
    assert (chosen_scale({}, suite), chosen_scale({"scale": "mini"}, suite)) == ("smoke", "mini")
    for config in ({"scales": "mini"}, {"scale": "large"}, {"scale": "mini", "seed": 1}):
        with pytest.raises(ConfigError, match=r"--config takes scale=smoke\|mini\|gpu\|paper and nothing else"):
            chosen_scale(config, suite)
    with pytest.raises(ConfigError, match=r"found {'scale': 'mni'}; did you mean 'mini'\?"):
        chosen_scale({"scale": "mni"}, suite)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("qrs", r"target: found 'qrs', allowed: .*; did you mean 'qsr'\?"),
        ("reprot", r"target: found 'reprot', allowed: .*; did you mean 'report'\?"),
        ("figures/smoke/qsr/fig55.pdf", r"qsr: item: found 'fig55', allowed: .*; did you mean 'fig5'\?"),
        ("figures/smoke/qsr/fig5.pfd", r"qsr fig5: found '.pfd', allowed: .pdf, .*; did you mean '.pdf'\?"),
        ("figures/smok/qsr/fig5.pdf", r"scale: found 'smok', allowed: .*; did you mean 'smoke'\?"),
        ("results/smoke/qsr/two_processes/h5/seed0/summary.json", r"qsr/two_processes: series: found 'h5', .*"),
        ("results/smoke/qsr/two_processes/h4/seed7/summary.json", r".*: found 'seed7', allowed: seed0.*"),
        ("elsewhere/x", "nothing of this name is declared"),
    ],
)
def test_a_target_that_no_rule_makes_is_answered_with_the_declared_names(target: str, expected: str, suite: Suite):
    assert re.fullmatch(expected, why_not_made(target, suite))

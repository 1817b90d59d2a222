"""The seeds that claims need: power against published values and a simulation, and the spread from pilot runs."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import synthetic
from scipy import stats

from resync.papers.audit.power import detectable, needed, power, powers
from resync.papers.audit.verdicts import MOST_SEEDS
from resync.papers.paper import load_suite
from resync.tools.cli import main

CONFIGS = Path(__file__).parent / "configs"
PILOTS = {"qsr": [97.0, 97.2, 97.4], "h4": [96.0, 96.6, 96.3], "parallel": [96.9, 97.0, 97.4]}


def test_published_values():
    """Those of the help page of R's power.t.test, whose two-sided tests at 5 % are one-sided ones at 2.5 %.

    They are of Student's test, beside which Welch's loses a little.
    """
    assert power("welch", 1.0, 1.0, (20, 20), 0.025) == pytest.approx(0.8689528, abs=0.001)
    assert needed("welch", 1.0, 1.0, 0.025, 0.9) == 23  # 22.02110
    assert needed("welch", 1.0, 1.0, 0.05, 0.9) == 18  # 17.84713


@pytest.mark.parametrize(("test", "seeds"), [("welch", (5, 5)), ("welch", (4, 8)), ("paired", (5, 5))])
def test_a_simulation_finds_the_power(test: str, seeds: tuple[int, int]):
    """Of the tests that decide claims, on 20,000 made-up experiments with an effect of 0.5 beyond the claimed 0.3."""
    rng, trials, std = np.random.default_rng(1), 20_000, 0.4
    better, than = rng.normal(80.8, std, (trials, seeds[0])), rng.normal(80.0, std, (trials, seeds[1]))
    if test == "welch":
        found = stats.ttest_ind(better - 0.3, than, axis=1, equal_var=False, alternative="greater").pvalue
    else:
        found = stats.ttest_1samp(better - than, 0.3, axis=1, alternative="greater").pvalue
        std *= np.sqrt(2)
    expected = power(test, 0.5, std, seeds, 0.05)
    assert np.mean(found < 0.05) == pytest.approx(expected, abs=0.01)  # three standard errors
    assert power(test, detectable(test, std, seeds, 0.05, expected), std, seeds, 0.05) == pytest.approx(expected)


@pytest.mark.parametrize("level", [0.05, 0.01, 0.001])
def test_few_seeds_and_strict_tests_have_a_power_too(level: float):
    """With two common seeds a test has one degree of freedom, and what it finds is many standard errors away."""
    effect = detectable("paired", 1.0, (2, 2), level)
    assert power("paired", effect, 1.0, (2, 2), level) == pytest.approx(0.8)
    assert needed("paired", 1.001 * effect, 1.0, level) == 2


def test_no_seeds_have_no_power():
    assert power("welch", 1.0, 0.1, (1, 5), 0.05) == 0
    assert detectable("welch", 0.1, (1, 5), 0.05) == float("inf")
    assert needed("welch", 0.0, 0.1, 0.05) is None
    assert needed("welch", 1e-4, 0.1, 0.05) is None


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    """The toy paper with three pilot seeds at smoke scale, and expected effects of two of its claims."""
    folder = shutil.copytree(CONFIGS, tmp_path / "configs")
    for file, old, new in (
        ("toy/experiments/vit.yaml", "  smoke:\n", "  smoke:\n    pilot_seeds: [100, 101, 102]\n"),
        ("toy/claims.yaml", "at_least: 0.3,", "at_least: 0.3, expected: {smoke: 1.0},"),
        ("toy/claims.yaml", "at_least: -0.5,", "at_least: -0.5, expected: {smoke: -0.9},"),
    ):
        synthetic.edit(folder / file, old, new)
    return folder


def test_pilots_say_how_many_seeds_the_claims_need(configs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    suite, results = load_suite(configs), tmp_path / "results"
    assert {run.seed for run in suite.runs("toy", "smoke")} == {0, 1, 2}  # what figures, tables and claims read
    pilots = suite.pilots("toy", "smoke")
    assert {run.seed for run in pilots} == {100, 101, 102}
    for run in pilots:
        if run.series in PILOTS:
            synthetic.write_run(run, results, top1=PILOTS[run.series][run.seed - 100])
    found = {(row.claim, row.than): row for row in powers(suite, "smoke", results, ["toy"])}
    assert list(found) == [
        ("toy/qsr_beats_h4", "h4"),
        ("toy/qsr_reaches_parallel", "parallel"),
        ("toy/accuracies", "parallel"),
        ("toy/accuracies", "h4"),
    ]
    beats = found["toy/qsr_beats_h4", "h4"]
    std = float(np.std(np.array(PILOTS["qsr"]) - PILOTS["h4"], ddof=1))
    assert (beats.std, beats.degrees, beats.declared) == (pytest.approx(std), 2, (3, 3))
    assert (beats.in_pilots, beats.shows) == (pytest.approx(0.9), "holds")
    assert beats.power == pytest.approx(power("paired", 0.7, std, (3, 3), 0.05))
    assert beats.seeds == needed("paired", 0.7, std, 0.05)
    assert beats.seeds
    assert beats.hours == pytest.approx(beats.seeds * 2 * _seconds(results) / 3600, rel=0.2)
    reaches = found["toy/qsr_reaches_parallel", "parallel"]
    differences = np.array(PILOTS["qsr"]) - PILOTS["parallel"]
    assert (reaches.std, reaches.degrees) == (pytest.approx(np.std(differences, ddof=1)), 2)
    assert reaches.shows == "fails"
    assert reaches.seeds == needed("paired", 0.4, float(np.std(differences, ddof=1)), 0.1)
    ordered = found["toy/accuracies", "h4"]
    assert (ordered.expected, ordered.seeds, ordered.power, ordered.problem) == (None, None, None, "")
    assert ordered.detectable == pytest.approx(detectable("paired", ordered.std or 0, (3, 3), 0.05))

    where = ["--configs", str(configs), "--results", str(results)]
    assert main(["power", *where, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out, parse_constant=pytest.fail)) == 4
    assert main(["power", *where]) == 0
    assert "4 comparisons: " in capsys.readouterr().out


def test_what_the_pilots_do_not_say_is_the_problem_of_its_row(
    configs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """A claim at an epoch that pilots do not have, an expected effect that is the claimed one, and pilots that tie."""
    file = configs / "toy/claims.yaml"
    text = file.read_text().replace("expected: {smoke: -0.9}", "expected: {smoke: -0.5}")
    file.write_text(text.replace("expected: {smoke: 1.0}", "expected: {smoke: 1.0}, at_epoch: 6"))
    suite, results = load_suite(configs), tmp_path / "results"
    pilots = [run for run in suite.pilots("toy", "smoke") if run.series in PILOTS]
    for run in pilots:
        directory = synthetic.write_run(run, results, top1=PILOTS[run.series][run.seed - 100])
        table = pd.read_csv(directory / "metrics.csv")
        table[table["epoch"] != 6].to_csv(directory / "metrics.csv", index=False, na_rep="nan")
        synthetic.reseal(directory)
    rows = {(row.claim, row.better): row for row in powers(suite, "smoke", results, ["toy"])}
    at_epoch = rows["toy/qsr_beats_h4", "qsr"]
    assert at_epoch.problem.endswith("metrics.csv: has no evaluation at epoch 6")
    assert at_epoch.power is None
    nothing = rows["toy/qsr_reaches_parallel", "qsr"]
    assert (nothing.shows, nothing.power, nothing.seeds, nothing.problem) == (None, None, None, "")
    assert nothing.std
    assert main(["power", "--configs", str(configs), "--results", str(results)]) == 0
    printed = capsys.readouterr().out
    assert "3 with no effect expected, 1 with no spread known" in printed
    assert f"> {MOST_SEEDS}" not in printed
    for run in pilots:
        synthetic.rewrite(results / run.directory, final={"val_top1": 97.0, "val_loss": 1.0})
    rows = {(row.claim, row.better): row for row in powers(suite, "smoke", results, ["toy"])}
    assert rows["toy/accuracies", "qsr"].problem == "all seeds of the pilots tie"


def _seconds(results: Path) -> float:
    """Training and evaluation of one pilot run, as its summary has them."""
    [file, *_] = sorted(results.rglob("qsr/seed100/summary.json"))
    clocks = json.loads(file.read_text())["seconds"]
    return float(clocks["training"] + clocks["evaluation"])


def test_without_pilots_the_reason_is_said(configs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "results").mkdir()
    assert main(["power", "--configs", str(configs), "--results", str(tmp_path / "results")]) == 0
    printed = capsys.readouterr().out
    assert "4 with no spread known" in printed
    assert "toy/qsr_beats_h4, qsr and h4: no finished pilot runs" in printed


def test_pilots_are_listed_where_they_are_asked_for(configs: Path, capsys: pytest.CaptureFixture[str]):
    for flags, seeds in (([], "012"), (["--pilots"], ["100", "101", "102"])):
        assert main(["list", "toy", "--runs", "--configs", str(configs), "--scale", "smoke", *flags]) == 0
        found = capsys.readouterr().out.splitlines()
        assert {line.rpartition("seed")[2] for line in found} == set(seeds)

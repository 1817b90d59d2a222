import math
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import synthetic

from resync.archive.fixed import fixed
from resync.audit import audit
from resync.audit.claims import claim_row
from resync.audit.effects import power
from resync.audit.headline import headline
from resync.audit.rows import ClaimRow
from resync.audit.surviving import surviving
from resync.audit.values import known_beforehand
from resync.cli import main
from resync.metrics.registry import BEST, COMPARED, EVALUATED, EXACT
from resync.paper import Suite
from resync.paper.claim import Claim, Regime, fingerprints
from resync.paper.paper import Tuned
from resync.results.runs import RunResult, RunState, read_run
from resync.results.runs import state_of as state_of_run
from resync.run import Run

Top1 = dict[str, list[float]]
FAR = {"qsr": [97.4, 97.5, 97.6], "h4": [96.6, 96.4, 96.5], "parallel": [97.2, 97.3, 97.1]}
"""Accuracies that bear every claim out."""
LESS = FAR | {"qsr": [96.9, 97.1, 97.0], "h4": [95.5, 95.9, 95.6]}
"""Accuracies of which QSR has less than parallel training, by no more than claimed."""
PARALLEL_OVER_H4 = "Parallel SGD over Local SGD, H = 4: effect"
QSR_OVER_PARALLEL = "QSR, H_base = 4 over Parallel SGD: effect"


def state_of(run: Run, top1: float, **changes: Any) -> RunState:
    """A finished run as collect would read it, with these entries of its summary; `status` changes its state."""
    status, reason = changes.pop("status", ("finished", ""))
    last = {"step": run.total_steps, "bytes_sent": 0, "val_top1": top1, "val_loss": 1.0}
    summary = synthetic.summary(run, [last | {"training_seconds": 4.0, "communication_seconds": 1.0}]) | changes
    result = RunResult(run.directory, pd.DataFrame(), pd.DataFrame(), summary)
    return RunState(run, status, reason, result if status != "not run" else None)


@pytest.fixture
def judge(suite: Suite) -> Callable[..., ClaimRow]:
    """The verdict on a claim, by name or changed, from smoke runs with these last accuracies by series.

    `changes`: by series and seed. A seed without an accuracy has not run.
    """

    def judge(claim: str | Claim, top1: Top1, seeds: int = 3, **changes: dict[int, dict[str, Any]]) -> ClaimRow:
        groups = {}
        for series in ("parallel", "h4", "qsr", "sgp"):
            values = dict(enumerate(top1.get(series, [])))
            groups["vit", series] = [
                state_of(run, values[run.seed], **changes.get(series, {}).get(run.seed, {}))
                if run.seed in values
                else state_of(run, math.nan, status=("not run", "the run has not finished"))
                for run in suite.runs("toy", "smoke", "vit", series)[:seeds]
            ]
        chosen = claim_of(suite, claim) if isinstance(claim, str) else claim
        return claim_row(suite.papers["toy"], chosen, groups, "smoke")

    return judge


def claim_of(suite: Suite, name: str, **changes: Any) -> Claim:
    return next(claim for claim in suite.papers["toy"].claims if claim.id == name).model_copy(update=changes)


@pytest.mark.parametrize(
    ("name", "top1", "verdict", "reason"),
    [
        ("qsr_beats_h4", FAR, "agrees", "effect +1.00 points (90 % interval +0.71 to +1.29)"),
        ("qsr_beats_h4", FAR | {"qsr": [96.6, 96.7, 96.8]}, "open", "neither a smaller effect (p = 0.789)"),
        ("qsr_beats_h4", FAR | {"qsr": [96.3, 96.4, 96.5]}, "smaller than published", "the claimed effect: p = 0.029"),
        ("qsr_beats_h4", FAR | {"qsr": [96.0, 96.1, 96.2]}, "disagrees", "rejects the claimed effect: p = 0.010"),
        ("qsr_reaches_parallel", LESS, "agrees", "rejects a smaller effect: p = 0.018"),
        ("qsr_reaches_parallel", LESS, "agrees", "(80 % interval -0.31 to -0.09)"),
        ("accuracies", FAR | {"qsr": [98.4, 98.5, 98.6]}, "agrees", f"{PARALLEL_OVER_H4} +0.70 points"),
        ("accuracies", FAR | {"h4": [98.4, 98.5, 98.6]}, "disagrees", f"{PARALLEL_OVER_H4} -1.30 points"),
        ("accuracies", FAR | {"qsr": [97.2, 97.3, 97.4]}, "open", f"{QSR_OVER_PARALLEL} +0.10 points"),
        # p = 0.035 for the one of two comparisons that could fail: not below 0.05 after Bonferroni's correction.
        ("accuracies", FAR | {"h4": [97.3, 97.4, 97.5]}, "open", f"{PARALLEL_OVER_H4} -0.20 points"),
        ("qsr_beats_h4", {"qsr": [97.5] * 3, "h4": [97.5] * 3}, "open", "without a spread: all seeds tie"),
        ("qsr_reaches_parallel", FAR | {"parallel": FAR["qsr"]}, "open", "without a spread: all seeds tie"),
        ("accuracies", FAR | {"qsr": [98.5] * 3, "parallel": [97.2] * 3}, "open", "test is impossible"),
        ("accuracies", {"qsr": [98.5] * 3, "parallel": [97.2] * 3, "h4": [98.4, 98.5, 98.6]}, "disagrees",
         f"{PARALLEL_OVER_H4} -1.30 points"),
    ],
)  # fmt: skip
def test_seeds_decide(judge, name: str, top1: Top1, verdict: str, reason: str):
    row = judge(name, top1)
    assert row.verdict == verdict, row.reason
    assert reason in row.reason


def test_a_schedule_decides_without_runs(suite: Suite, judge):
    row = judge("volumes", {})
    step = "QSR, H_base = 4 over Local SGD, H = 4: effect +5.45 points"
    assert (row.verdict, row.because, row.reason) == (
        "untested",
        "arithmetic",
        f"{step}; claimed: at least 5, from the configuration",
    )
    assert [side.ours.text for side in row.sides][:2] == [
        "19.545 (from the configuration)",
        "25.000 (from the configuration)",
    ]
    assert judge(claim_of(suite, "volumes", at_least=5.5), {}).verdict == "disagrees"
    smallest = min(effect.difference for effect in row.effects)
    assert judge(claim_of(suite, "volumes", at_least=smallest + 1e-12), {}).verdict == "untested"
    row = judge(claim_of(suite, "volumes", metric="averaging_error"), {})
    assert row.verdict == "untested"
    assert row.reason.endswith("sync local of 8 workers does not mix with one topology")


def test_a_series_of_another_experiment_is_named_with_it(judge, suite: Suite):
    here, there = (judge(claim_of(suite, "qsr_beats_h4", than=than), FAR) for than in ("h4", "vit/h4"))
    assert (there.verdict, there.reason) == (here.verdict, here.reason)
    assert [side.label for side in there.sides] == [side.label for side in here.sides]


@pytest.mark.parametrize(
    ("name", "top1", "changes", "verdict", "reason"),
    [
        ("qsr_beats_h4", {}, {}, "untested, not run", "QSR, H_base = 4: 0 of 3 seeds; "),
        ("qsr_beats_h4", FAR | {"h4": []}, {}, "untested, not run", "Local SGD, H = 4: 0 of 3 seeds; "),
        ("qsr_beats_h4", FAR | {"h4": [96.4, 96.5]}, {}, "open, seeds do not decide",
         "Local SGD, H = 4: 2 of 3 seeds; "),
        ("qsr_beats_h4", FAR, {"qsr": {1: {"status": ("stale", "trained with configuration 0")}}}, "untested, not run",
         "QSR, H_base = 4: stale: 1 of 3 seeds; seed 1 trained with configuration 0"),
        ("qsr_beats_h4", FAR, {"h4": {2: {"final": {}}}}, "untested, not comparable",
         "smoke/toy/vit/h4/seed2/summary.json: "),
        ("sgp_time", FAR, {}, "untested, another scale", "meaningful at paper scale, these runs are of smoke scale"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_says_why(judge, name: str, top1: Top1, changes, verdict: str, reason: str):
    row = judge(name, top1, **changes)
    assert (f"{row.verdict}, {row.because}", row.effects) == (verdict, ())
    assert row.reason.startswith(reason)


@pytest.mark.parametrize("name", ["qsr_beats_h4", "qsr_reaches_parallel"])
def test_one_seed_has_no_spread_and_two_are_enough_for_a_test(judge, name: str):
    row = judge(name, {series: values[:1] for series, values in FAR.items()}, seeds=1)
    assert row.verdict == "open"
    assert "1 more of QSR, H_base = 4" in row.reason
    row = judge(name, {"qsr": [97.4, 97.5], "h4": [96.4, 96.6], "parallel": [97.1, 97.3]}, seeds=2)
    assert row.effects[0].p_less is not None
    assert row.reason.endswith("(n = 2)")


def test_a_claim_can_be_of_an_earlier_epoch(suite: Suite, finished: Path):
    """The made-up curves are in the order of their ends at every epoch but the first."""
    claim = claim_of(suite, "qsr_beats_h4", at_epoch=6.0)
    groups = {("vit", name): [state_of_run(run, finished) for run in suite.runs("toy", "smoke", "vit", name)]
              for name in ("qsr", "h4")}  # fmt: skip
    row = claim_row(suite.papers["toy"], claim, groups, "smoke")
    expected = [
        next(each["val_top1"] for each in synthetic.tables(run)[0] if each["epoch"] == 6)
        for run in suite.runs("toy", "smoke", "vit", "qsr")
    ]
    assert row.sides[0].ours.values == pytest.approx(expected)
    assert row.at_epoch == 6
    row = claim_row(suite.papers["toy"], claim.model_copy(update={"at_epoch": 6.5}), groups, "smoke")
    assert row.verdict == "untested"
    assert row.reason.endswith("metrics.csv: has no evaluation at epoch 6.5")


def test_a_claim_that_cannot_be_decided_says_why(suite: Suite, judge):
    row = judge(claim_of(suite, "qsr_beats_h4", undecidable="the paper does not say on which data"), FAR)
    assert row.verdict == "untested"
    assert row.reason == "cannot be decided as declared: the paper does not say on which data"


def hours(first: float) -> dict[int, dict[str, Any]]:
    """Hours of communication of three seeds."""
    seconds = {"training": 2e4, "evaluation": 0.0, "wall": 2e4}
    return {seed: {"seconds": seconds | {"communication": 3600 * first * (1 + seed / 100)}} for seed in range(3)}


def test_times_are_compared_on_one_kind_of_hardware(suite: Suite, judge):
    times = claim_of(suite, "sgp_time", scales=("smoke",))
    top1 = FAR | {"sgp": FAR["qsr"]}
    assert judge(times, top1, sgp=hours(1), parallel=hours(2)).verdict == "agrees"
    row = judge(times, top1, sgp={1: {"launch": {"device": "NVIDIA H100", "world_size": 8}}})
    assert row.verdict == "untested"
    different = "times of different or unknown hardware: "
    assert row.reason == f"{different}NVIDIA H100, 1 processes per worker; cpu, 1/8 processes per worker"
    row = judge(times, top1, sgp={seed: {"launch": None} for seed in range(3)})
    assert row.reason == f"{different}cpu, 1/8 processes per worker; unknown (imported)"


def test_a_claim_for_other_hardware_does_not_fail(suite: Suite, judge):
    claim = claim_of(suite, "sgp_time", scales=("smoke",), at_least=1.0)
    top1 = FAR | {"sgp": FAR["qsr"]}
    times = {"sgp": hours(1), "parallel": hours(1.5)}
    assert judge(claim, top1, **times).verdict == "smaller than published"
    row = judge(claim.model_copy(update={"hardware": "10 Gbit/s Ethernet"}), top1, **times)
    assert (row.verdict, row.hardware) == ("open", "10 Gbit/s Ethernet")
    assert row.reason.endswith("; but claimed for 10 Gbit/s Ethernet")


def test_every_metric_that_is_compared_is_one_of_results_or_of_the_configuration(finished: Path, runs: list[Run]):
    result = read_run(finished / runs[0].directory)
    result.summary["final"] |= dict.fromkeys((*BEST, *EVALUATED), 1.0)
    result.summary["best"] |= dict.fromkeys(BEST, 1.0)
    for metric in COMPARED:
        assert metric in EXACT or math.isfinite(result.final(metric)), metric
    assert all(known_beforehand([run], metric)[0].finite for metric in EXACT for run in runs if run.series == "sgp")


def test_check_fails_when_a_claim_fails(suite: Suite, results: Path, capsys: pytest.CaptureFixture[str]):
    for run in suite.runs("toy", "smoke", "vit", "qsr"):
        synthetic.rewrite(results / run.directory, final={"val_top1": 90.0 + run.seed / 10, "val_loss": 1.0})
    configs = str(Path(__file__).parent / "configs")
    assert main(["audit", "--configs", configs, "--results", str(results), "--paper", "toy", "--check"]) == 1
    assert "of 5 claims 2 are tested: 2 disagree; 3 are untested" in capsys.readouterr().out


# Regimes


def test_a_training_that_diverged_has_the_worst_rank(judge):
    """So has one without a finite value; a time of a run that diverged is none."""
    broken = {1: {"status": ("diverged", "at step 300 worker 3")}, 2: {"final": {"val_top1": None}}}
    row = judge("qsr_beats_h4", FAR, h4=broken)
    assert (row.verdict, row.effects[0].low) == ("agrees", None)
    assert "the test of ranks rejects a smaller effect: p = 0.050 (n = 3)" in row.reason
    row = judge("qsr_beats_h4", FAR, qsr=dict.fromkeys(range(3), broken[1]))
    assert row.verdict == "disagrees"
    assert "the test of ranks rejects the claimed effect" in row.reason


def test_equal_trainings_exercise_nothing(judge):
    same = {seed: {"parameters_sha256": f"{seed}" * 64} for seed in range(3)}
    row = judge("qsr_beats_h4", FAR, qsr=same, h4=same)
    assert (row.verdict, row.because, row.survives) == ("untested", "outside its regime", None)
    assert row.reason.startswith("all 3 runs of QSR, H_base = 4 and Local SGD, H = 4 are the same trainings")


@pytest.mark.parametrize(
    ("regime", "reason"),
    [
        ({"outside": "six passes"}, "six passes; tested all the same: agrees, effect +1.00 points"),
        ({"values": [{"metric": "val_top1", "series": "h4", "least": 96}]}, ""),
        ({"values": [{"metric": "val_top1", "series": "vit/h4", "least": 97}]},
         "validation top-1 accuracy of Local SGD, H = 4 is 96 %, needed: at least 97; tested all the same: agrees"),
        ({"values": [{"metric": "val_loss", "series": "qsr", "most": 0.5}]},
         "validation loss of QSR, H_base = 4 is 1.0 nats, needed: at most 0.5; tested"),
        ({"values": [{"metric": "sharpness", "series": "qsr", "most": 1.0}]},
         "sharpness of QSR, H_base = 4 is not known: smoke/toy/vit/qsr/seed0/summary.json: has no metric sharpness"),
        ({"values": [{"metric": "dose", "series": "h4", "least": 0.1}]}, ""),
        ({"values": [{"metric": "dose", "series": "h4", "least": 1e3}]}, "dose of Local SGD, H = 4 is "),
        ({"control": "accuracies"}, ""),
        ({"control": "sgp_time"}, "its positive control sgp_time does not hold"),
    ],
)  # fmt: skip
def test_outside_of_its_regime_a_claim_is_not_decided(suite: Suite, judge, regime: dict[str, Any], reason: str):
    claim = claim_of(suite, "qsr_beats_h4", regime={"smoke": Regime.model_validate(regime)})
    row = judge(claim, FAR | {"parallel": [96.9, 97.05, 96.9]})
    assert row.verdict == ("untested" if reason else "agrees"), row.reason
    assert row.because == ("outside its regime" if reason else "runs decide")
    assert row.reason.startswith(reason)


def test_that_nothing_is_lost_holds_only_beside_a_gain(suite: Suite, judge):
    alone = claim_of(suite, "qsr_reaches_parallel", regime={})
    row = judge(alone, LESS)
    assert row.verdict == "untested"
    assert row.reason.startswith("nothing is lost, without a positive control that shows that something could be; ")
    assert judge(alone.model_copy(update={"status": "ours"}), LESS).verdict == "agrees"
    assert judge("qsr_reaches_parallel", LESS).verdict == "agrees"


@pytest.mark.parametrize(("best", "verdict"), [("h4", "agrees"), ("parallel", "untested")])
def test_tuned_series_have_the_settings_of_the_best_of_their_grid(suite: Suite, judge, best: str, verdict: str):
    """Here every series is a grid of itself, of the same rate, and h4 of h4 and parallel, which differ in `sync`."""
    paper = suite.papers["toy"]
    grid = {"qsr": ("vit/qsr",), "h4": ("vit/h4", "vit/parallel")}
    tuned = Tuned.model_validate({"metric": "val_top1", "grid": grid})
    experiments = {"vit": replace(paper.experiments["vit"], tuned=tuned)}
    groups = {("vit", name): [state_of(run, {best: 98.0}.get(name, 96.0) - {"qsr": -3}.get(name, 0) + run.seed / 9)
                              for run in suite.runs("toy", "smoke", "vit", name)]
              for name in ("qsr", "h4", "parallel")}  # fmt: skip
    groups["vit", "qsr"] = [state_of(state.run, 99 + state.run.seed / 7) for state in groups["vit", "qsr"]]
    claim = claim_of(suite, "qsr_beats_h4", regime={"smoke": Regime(tuned=True)})
    row = claim_row(paper.model_copy(update={"experiments": experiments}), claim, groups, "smoke")
    assert row.verdict == verdict, row.reason
    assert row.reason.startswith("Local SGD, H = 4 has sync.name local, the best of its grid ") is (best != "h4")


def test_a_statement_begins_with_what_was_trained(suite: Suite, judge):
    row = judge("qsr_beats_h4", FAR)
    assert row.statement == (
        "Here (MLP of 4,810 parameters on 8x8 grey images of ten handwritten digits, 8 workers, 30 epochs): "
        "QSR ends more accurate than constant H."
    )
    assert (
        judge(claim_of(suite, "qsr_beats_h4", status="ours"), FAR).statement
        == "QSR ends more accurate than constant H."
    )


def test_power_is_that_against_the_published_effect(suite: Suite, judge):
    published = {value.series: value.value for value in suite.papers["toy"].published if value.metric == "val_top1"}
    row = judge("qsr_beats_h4", FAR)
    assert row.published_effect == pytest.approx(published["qsr"] - published["h4"])
    std = 0.1 * 3**0.5
    assert row.power == pytest.approx(power("paired", row.published_effect - 0.3, std, (3, 3), 0.05))


def test_a_correction_for_many_tests_keeps_what_stands_out(judge):
    """Of ten tests, p = 0.003 and 0.01 in two directions; by Benjamini and Hochberg the second needs 0.01."""
    row = judge("qsr_beats_h4", FAR)
    [effect] = row.effects

    def of(p: float, verdict: str) -> ClaimRow:
        return replace(row, verdict=verdict, effects=(replace(effect, p_less=p, p_more=1 - p),))

    rows = [of(0.001, "agrees"), of(0.997, "disagrees"), of(0.04, "agrees"), *[of(0.5, "open")] * 7]
    outside = of(0.0001, "untested")
    assert [each.survives for each in surviving([*rows, outside])] == [True, True, False, *[None] * 8]


def test_headline_claims_are_counted_by_paper(suite: Suite, finished: Path):
    paper = suite.papers["toy"]
    claims = tuple(claim.model_copy(update={"headline": True}) for claim in paper.claims)
    found = audit(replace(suite, papers={"toy": paper.model_copy(update={"claims": claims})}), "smoke", finished)
    assert headline(found)[1] == "toy: 5 headline claims: 3 agrees, 2 untested."


def test_a_claim_is_fixed_in_a_commit_before_its_first_run(suite: Suite, tmp_path: Path):
    """By the history of its file; what is only worded otherwise stays fixed, and a new margin or regime does not."""
    file, git = (
        tmp_path / "toy/claims.yaml",
        ["git", "-C", str(tmp_path), "-c", "user.name=A", "-c", "user.email=a@b.c"],
    )
    file.parent.mkdir()
    subprocess.run([*git, "init", "-q"], check=True)
    text = (Path(__file__).parent / "configs/toy/claims.yaml").read_text()
    for day, old, new in (
        (1, "made up", "made up"), (2, "statement: QSR ends", "statement: Here QSR ends"),
        (3, "at_least: -0.5", "at_least: -0.6"), (4, "{inside: made up}", "{inside: any length}"),
    ):  # fmt: skip
        text = text.replace(old, new)
        file.write_text(text)
        times = {f"GIT_{who}_DATE": f"2025-12-{26 + day}T00:00:00Z" for who in ("AUTHOR", "COMMITTER")}
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-q", "-m", str(day)], check=True, env=os.environ | times)
    found = fixed(file)
    days = {(name, part): known[2][8:10] for name, parts in found.items() for part, known in parts.items()}
    assert days["qsr_beats_h4", "test"] == "27"
    assert days["qsr_beats_h4", "regime"] == "30"
    assert days["qsr_reaches_parallel", "test"] == "29"

    paper = suite.papers["toy"]
    claim = claim_of(suite, "qsr_beats_h4")
    runs = {name: suite.runs("toy", "smoke", "vit", name) for name in ("qsr", "h4")}

    def said(started: str, **known: Any) -> str:
        groups = {("vit", name): [state_of(run, 97.0 + run.seed, started=started) for run in of]
                  for name, of in runs.items()}  # fmt: skip
        return claim_row(paper.model_copy(update={"fixed": {claim.id: known}}), claim, groups, "smoke").fixed

    now = fingerprints(claim.model_dump(mode="json", exclude_defaults=True))
    known = {part: (digest, "c" * 40, time) for (part, digest), time in
             zip(now.items(), ("2026-01-01T00:00:00+00:00", "2026-01-03T00:00:00+00:00"), strict=True)}  # fmt: skip
    assert known["test"][0] == found["qsr_beats_h4"]["test"][0]
    assert said("2026-01-04T00:00:00+00:00", **known) == "in cccccccccccc, before its first run"
    assert said("2026-01-02T00:00:00Z", **known) == "in cccccccccccc, before its first run; its regime after it"
    assert said("2025-12-31T00:00:00Z", **known) == "in cccccccccccc, after its first run"
    assert said("2026-01-04T00:00:00Z", test=("another", *known["test"][1:])) == "in no commit"

import json
import math
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import synthetic

from resync.papers.audit import Audit, audit, gather, sentence, write
from resync.papers.audit.headline import headline
from resync.papers.audit.page import to_json
from resync.papers.paper import Suite
from resync.papers.paper.published import PublishedValue
from resync.runs.results import runs as runs_on_disk
from resync.runs.run import Run

METRIC = "best_val_top1"


@pytest.fixture
def at_paper_scale(suite: Suite, tmp_path: Path) -> Callable[..., Audit]:
    """An audit of paper-scale results with these final accuracies, by series."""

    def make(top1: dict[str, list[float]], **changes) -> Audit:
        synthetic.write_paper_scale(suite, tmp_path, top1, **changes)
        return audit(suite, "paper", tmp_path)

    return make


def row_of(result: Audit, name: str):
    return next(row for row in result.lines if row.id == name)


@pytest.mark.parametrize(("variant", "verdict"), [("cifar10", "agrees"), ("cifar10-jpeg-q75", "untested")])
def test_results_on_another_copy_of_the_images_are_not_compared(
    papers: Suite, tmp_path: Path, variant: str, verdict: str
):
    for run in papers.runs("slowmo", "paper", "cifar10_resnet18", "ar"):
        synthetic.write_short_run(run, tmp_path, 92.66)
        synthetic.rewrite(tmp_path / run.directory, data={"name": "cifar10", "variant": variant, "sha256": "0" * 64})
    rows = audit(papers, "paper", tmp_path, papers=["slowmo"]).rows
    [row] = [each for each in rows if (each.experiment, each.series, each.metric) == ("cifar10_resnet18", "ar", METRIC)]
    assert row.verdict == verdict
    assert ("trained on cifar10-jpeg-q75, published on cifar10" in row.reason) == (verdict == "untested")


def test_accuracies_are_compared_at_their_own_scale_only(suite: Suite, finished: Path):
    result = audit(suite, "smoke", finished)
    row = row_of(result, "qsr_top1")
    assert (row.verdict, row.because) == ("untested", "another scale")
    assert (row.difference, row.tolerance, row.ours.scale) == (None, None, "smoke")
    assert row.ours.text.endswith("(n=3)")


def test_volumes_are_compared_at_every_scale_from_the_declared_schedule(suite: Suite, tmp_path: Path):
    for scale in suite.scales:
        result = audit(suite, scale, tmp_path)
        assert row_of(result, "h4_volume").because == "arithmetic"
        row = row_of(result, "qsr_volume")
        assert row.because == "source uncertain"
        assert row.ours.mean == 10.375
        assert row.difference == pytest.approx(-0.025)
        assert "tolerance 0.05 (half a unit of the last printed decimal); uncertain" in row.reason


def test_a_value_that_is_not_known_is_to_be_filled(suite: Suite, finished: Path):
    row = row_of(audit(suite, "smoke", finished), "sgp_top1")
    assert (row.because, row.reference.status, row.difference) == ("source uncertain", "missing", None)


def test_the_headline_counts_the_verdicts_and_names_the_command_for_other_scales(suite: Suite, finished: Path):
    lines = headline(audit(suite, "smoke", finished))
    counts = ["4331", "55", "33", "1"]
    assert ["".join(re.findall(r"\d+", line)) for line in lines] == counts
    assert "make reproduce SCALE=paper" in lines[-1]


def test_without_runs_nothing_is_reproduced_and_no_claim_holds(without_runs: dict[str, Audit]):
    for result in without_runs.values():
        assert {row.verdict for row in result.lines} == {"untested"}
        assert not result.failed
        assert re.match(r"Claims of papers: of \d+ claims none is tested; \d+ are untested. SGP: ", sentence(result))


def test_one_quantity_is_one_row_with_its_sources(with_values):
    values = [
        {"id": "table", "value": 80.9, "status": "unverified", "source": "table 1"},
        {"id": "caption", "value": 80.98, "status": "verified", "source": "figure 5"},
    ]
    [row] = [row for row in with_values(values, {}, TOP1).rows if row.kind == "measured"]
    assert (row.id, row.reference.text) == ("caption", "80.98")
    assert [(other.text, other.source) for other in row.also] == [("80.9", "table 1")]


def test_a_row_says_where_its_results_come_from(suite: Suite, results: Path):
    mine = suite.runs("toy", "smoke", "vit", "h4")
    shutil.rmtree(results / "smoke/toy/vit/qsr")
    synthetic.rewrite(results / mine[1].directory, launch={"device": "NVIDIA H100", "world_size": 1, "host": "other"})
    synthetic.rewrite(results / mine[2].directory, ended="2026-01-02T00:00:00Z", versions={"torch": "2.14.0"})
    found = row_of(audit(suite, "smoke", results), "qsr_beats_h4").provenance
    assert found == {
        "runs": [{"directory": str(run.directory), "seed": run.seed, "status": "finished"} for run in mine],
        "config_hashes": list(dict.fromkeys(run.hash for run in mine)),
        "commits": ["0123456789abcdef0123456789abcdef01234567"],
        "dirty": False,
        "devices": ["cpu", "NVIDIA H100"],
        "hosts": ["host", "other"],
        "versions": {"python": ["3.11.7"], "torch": ["2.13.0", "2.14.0"], "resync": ["0.1.0"]},
        "imported": [],
        "ended": "2026-01-02T00:00:00Z",
    }


def test_other_rounds_than_planned_fail(suite: Suite, results: Path, runs: list[Run]):
    synthetic.rewrite(results / runs[2].directory, rounds=130)
    result = audit(suite, "smoke", results)
    assert [line.partition(": damaged: ")[2] for line in result.damaged_runs] == [
        f"{results / runs[2].directory / 'summary.json'}: found 130 rounds, allowed: 129, as its schedule says"
    ]
    assert result.failed


@pytest.mark.parametrize(
    ("seeds", "word", "because"),
    [
        ([79.0, 79.3, 79.6], "open", "seeds do not decide"),
        ([79.3, 79.32, 79.34], "agrees", "runs decide"),
        ([78.0, 78.02, 78.04], "disagrees", "runs decide"),
        ([80.0, 80.02, 80.04], "open", "better"),
        ([79.3, 79.32], "open", "seeds do not decide"),
        ([], "untested", "not run"),
    ],
)
def test_verdict_on_a_measured_accuracy(seeds: list[float], word: str, because: str, at_paper_scale):
    result = at_paper_scale({"h4": seeds})
    row = row_of(result, "h4_top1")
    assert (row.verdict, row.because) == (word, because), row.reason
    assert row.tolerance == 0.25
    assert row.tolerance_basis == "declared: made up"
    assert result.failed == (word == "disagrees")
    assert row.ours.declared == 3


def test_published_spread_decides_by_welch(at_paper_scale):
    row = row_of(at_paper_scale({"parallel": [79.84, 79.86, 79.88]}), "parallel_top1")
    assert row.verdict == "agrees"
    assert row.tolerance_basis.startswith("Welch")


@pytest.fixture
def with_values(suite: Suite, tmp_path: Path) -> Callable[..., Audit]:
    """An audit of paper-scale results of two series with these accuracies and seconds, and of these published values.

    One seed whose time is None was trained on unknown hardware.
    """

    def make(values: list[dict], seconds: dict[str, list[float | None]], top1: dict[str, list[float]]) -> Audit:
        synthetic.write_paper_scale(suite, tmp_path, {series: top1[series] for series in seconds})
        for series, times in seconds.items():
            for run, time in zip(suite.runs("toy", "paper", "vit", series), times, strict=True):
                clocks = {"training": time or 0.0, "communication": 0.0, "evaluation": 0.0, "wall": 1.0}
                launch = None if time is None else {"device": "cpu", "world_size": 1}
                synthetic.rewrite(tmp_path / run.directory, seconds=clocks, launch=launch)
        common = {"experiment": "vit", "series": "qsr", "metric": "val_top1", "unit": "%", "status": "verified"}
        published = tuple(
            PublishedValue(**(common | {"id": "value", "source": "abstract"} | value)) for value in values
        )
        paper = suite.papers["toy"].model_copy(update={"published": published})
        return audit(replace(suite, papers={"toy": paper}), "paper", tmp_path)

    return make


HOURS = {"metric": "training_hours", "unit": "h"}
TIMES = [
    HOURS | {"id": "parallel", "series": "parallel", "value": 26.7},
    HOURS | {"id": "qsr", "value": 20.2, "relative_to": "parallel"},
    HOURS | {"id": "ratio", "value": 0.757, "unit": "1", "than": "parallel", "comparison": "ratio"},
    HOURS | {"id": "bound", "series": "parallel", "value": 25, "bound": "lower", "relative_to": "qsr"},
]
TOP1 = {"qsr": [80.9, 81.0, 81.1], "parallel": [79.75, 79.85, 79.95]}


@pytest.mark.parametrize("hour", [3600, 360], ids=["hours", "less than an hour"])
@pytest.mark.parametrize(
    ("qsr_hours", "word", "reason"),
    [
        ([1.5, 1.5, 1.52], "agrees", "ratio 0.753, published 0.757; of their log"),
        ([2.1, 2.1, 2.1], "open", "another machine or network than the paper's may explain it"),
        ([1.5, None, 1.5], "untested", "hardware: cpu, 1/16 processes per worker; unknown"),
    ],
)
def test_times_are_compared_as_ratios_on_one_machine(with_values, qsr_hours, word, reason, hour):
    seconds = {"qsr": [hour * h if h else None for h in qsr_hours], "parallel": [hour * 2.0] * 3}
    result = with_values(TIMES, seconds, TOP1)
    rows = [row_of(result, name) for name in ("qsr", "ratio", "bound")]
    assert {row.verdict for row in rows} == {word}
    assert reason in rows[0].reason
    assert rows[0].difference is None
    bare = row_of(result, "parallel")
    assert bare.because == "not comparable"
    assert bare.reason == "time depends on the hardware; compare ratios on one machine"
    assert not result.failed


@pytest.mark.parametrize("value", [0.757, None])
def test_a_number_that_cannot_be_decided_says_why(with_values, value):
    status = "verified" if value else "missing"
    ratio = TIMES[2] | {"value": value, "status": status, "undecidable": "another machine ran it"}
    row = row_of(with_values([ratio], {"qsr": [1.5] * 3, "parallel": [2.0] * 3}, TOP1), "ratio")
    assert (row.verdict, row.because) == ("untested", "not comparable")
    assert row.reason == "cannot be decided as declared: another machine ran it"


def test_a_number_of_which_no_run_is_declared_is_counted_and_says_so(with_values):
    """Also of two such trainings, whose difference no accuracy can be; one training in two tables is one number."""
    bare = {"experiment": None, "series": None}
    large = bare | {"of": "a model of 1 B parameters", "value": 85.0}
    values = [
        {"id": "table_1", **large, "source": "table 1"},
        {"id": "table_2", **large, "source": "table 2"},
        {"id": "gain", **bare, "of": "1 B parameters beside 10 M", "value": -3.5, "comparison": "difference"},
        {"id": "ours", "value": 80.98},
    ]
    result = with_values(values, {"qsr": [1.0] * 3}, {"qsr": [80.98] * 3})
    rows = [row for row in result.rows if row.kind == "measured"]
    assert [(row.id, row.verdict, row.because) for row in rows] == [
        ("table_1", "untested", "not run"), ("gain", "untested", "not run"), ("ours", "agrees", "runs decide"),
    ]  # fmt: skip
    assert [also.id for also in rows[0].also] == ["table_2"]
    assert (rows[0].label, rows[0].reason) == (large["of"], "no run of this training is declared here")
    assert (rows[0].ours.text, rows[0].difference) == ("none", None)
    assert "3 published numbers that training measures: 1 agrees, 2 untested." in sentence(result)


def test_a_published_gain_is_compared_with_the_difference_of_two_series(with_values):
    values = [
        {"id": "gain", "value": 1.16, "than": "parallel"},
        {"id": "loss", "series": "parallel", "value": -3.16, "than": "qsr"},
        {"id": "gap", "value": 1.5, "than": "parallel", "bound": "upper"},
        {"id": "more", "value": 1.5, "than": "parallel", "bound": "lower"},
    ]
    result = with_values(values, {"qsr": [1.0] * 3, "parallel": [1.0] * 3}, TOP1)
    rows = [row_of(result, value["id"]) for value in values]
    assert [row.verdict for row in rows] == ["agrees", "open", "agrees", "disagrees"]
    assert rows[0].label == "QSR, H_base = 4, minus Parallel SGD"
    assert (rows[0].ours.text, rows[0].than) == ("1.15 (n=3 and 3)", "parallel")
    assert rows[0].difference == pytest.approx(-0.01)
    assert [row.reference.text for row in rows[2:]] == ["< 1.5", "> 1.5"]
    assert "on the right side of the upper bound 1.5" in rows[2].reason


def test_other_configuration_is_stale_not_a_number(at_paper_scale):
    row = row_of(at_paper_scale({"h4": [79.3, 79.32, 79.34]}, config_hash="0" * 16), "h4_top1")
    assert row.because == "not run"
    assert "stale: 3 of 3 seeds; seed 0 trained with configuration 0000000000000000" in row.reason
    assert row.ours.values == ()
    assert row.difference is None


def test_a_diverged_seed_is_never_averaged_away(suite: Suite, tmp_path: Path):
    for run in suite.runs("toy", "paper", "vit", "h4"):
        synthetic.write_run(run, tmp_path, diverged_at=300 if run.seed == 1 else None)
    result = audit(suite, "paper", tmp_path)
    row = row_of(result, "h4_top1")
    assert (row.verdict, row.reason) == ("disagrees", "diverged: 1 of 3 seeds; seed 1 at step 300 worker 3")
    assert len(row.ours.values) == 2
    assert result.failed


def test_a_run_is_read_once_and_an_unchanged_configuration_not_validated_again(
    suite: Suite, finished: Path, monkeypatch: pytest.MonkeyPatch
):
    """Each run is read once, regardless of the number of published values and claims."""
    read = []
    read_table = runs_on_disk.read_table
    monkeypatch.setattr(runs_on_disk, "read_table", lambda path, *of: (read.append(path), read_table(path, *of))[1])
    monkeypatch.setattr(Run, "from_file", pytest.fail)
    audit(suite, "smoke", finished)
    assert len(read) == len(set(read)) == 2 * len(suite.runs("toy", "smoke"))


def test_the_audit_is_written_as_json(suite: Suite, finished: Path, tmp_path: Path):
    result = audit(suite, "smoke", finished)
    text = write(result, tmp_path / "smoke").read_text()
    content = json.loads(text, parse_constant=pytest.fail)  # NaN is not JSON
    assert set(content["failures"]) < set(content["signs"]) == set(content["verdicts"])
    assert content["failed"] is False
    assert content["totals"] == {
        "measured": {"untested": 5},
        "own_references": {},
        "computed": {"untested": 3},
        "claims": {"agrees": 3, "untested": 2},
        "own_claims": {},
        "logs": {},
        "comparisons": {},
    }
    assert len(content["claims"]) == 5
    assert all(row["reason"] and side["ours"]["text"] for row in content["claims"] for side in row["sides"])
    missing = next(row for row in content["rows"] if row["id"] == "sgp_top1")
    assert missing["reference"]["value"] is None
    assert [item["title"] for item in content["missing_items"]["toy"]] == ["Figure 9: accuracy on <other> data"]


def test_an_overview_says_what_the_parts_say_and_reads_no_run(suite: Suite, results: Path):
    """Including a number that JSON cannot represent: a seed without a finite loss."""
    run = suite.runs("toy", "smoke", "vit", "qsr")[0]
    synthetic.rewrite(results / run.directory, final={"val_top1": None, "val_loss": None})
    part = audit(suite, "smoke", results)
    write(part, results / "smoke/toy")
    shutil.rmtree(results / "smoke/toy/vit")
    whole = gather(suite, "smoke", results)
    assert any(math.isnan(value) for row in whole.rows for value in row.ours.values)
    assert to_json(whole) == to_json(part)


@pytest.mark.parametrize(
    ("content", "message"), [(None, "missing, allowed: a file written by"), ("{}", "not an audit")]
)
def test_an_overview_needs_every_part(suite: Suite, tmp_path: Path, content: str | None, message: str):
    if content is not None:
        write(audit(suite, "smoke", tmp_path), tmp_path / "smoke/toy")
        (tmp_path / "smoke/toy/audit.json").write_text(content)
    with pytest.raises(ValueError, match=f"smoke/toy/audit.json: {message}"):
        gather(suite, "smoke", tmp_path)

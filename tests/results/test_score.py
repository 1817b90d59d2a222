"""The score of an audit: the tree of claims and numbers, its weights, and what counts as what."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import synthetic

from resync.audit import Audit, audit, write
from resync.audit.headline import headline, totals
from resync.audit.score import OUTCOMES, WHY, Score, score
from resync.cli import main
from resync.config import ConfigError, Suite, load_suite

CONFIGS = Path(__file__).parent / "configs"


def parts(found: Score) -> list[Score]:
    """A score and all of its parts."""
    return [found, *(each for part in found.parts.values() for each in parts(part))]


def test_without_runs_everything_is_undecided_and_accounted_for(without_runs: dict[str, Audit]):
    for scale, result in without_runs.items():
        whole = score(result)
        assert whole is not None
        for each in parts(whole):
            assert (each.reproduced, each.holds, each.fails) == (0, 0, 0)
            assert each.undecided == pytest.approx(1)
            assert sum(each.why.values()) == pytest.approx(1)
            assert sum(part.weight for part in each.parts.values()) == pytest.approx(1 if each.parts else 0)
        assert whole.why.keys() <= WHY.keys() - {"seeds missing", "not decided", "better"}
        assert whole.parts["qsr"].why["computed only"] > 0
        assert whole.parts["qsr"].why["GPU hours needed"] > 0.05
        assert headline(result)[0].startswith(f"Score at {scale} scale, by weight: reproduced 0.0 %, holds 0.0 %,")


def test_claims_and_numbers_share_the_weight_of_their_figure_or_table(suite: Suite, finished: Path):
    """Five claims belong to the first figure that shows their series, eight numbers to table 1."""
    whole = score(audit(suite, "smoke", finished))
    assert whole is not None
    assert (whole.reproduced, whole.holds, whole.fails) == (0, pytest.approx(3 / 10), 0)
    assert whole.why == {
        "computed only": pytest.approx(1 / 10 + 2 / 16),
        "value unknown": pytest.approx(1 / 16),
        "source unverified": pytest.approx(1 / 16),
        "not comparable": pytest.approx(1 / 16),
        "at another scale": pytest.approx(1 / 10 + 3 / 16),
    }
    [section] = whole.parts["toy"].parts.values()
    assert {name: part.weight for name, part in section.parts.items()} == {"table1": 0.5, "fig5": 0.5}


def test_measured_numbers_count_by_their_verdicts(suite: Suite, tmp_path: Path):
    for series, values in {"h4": [79.3, 79.32, 79.34], "qsr": [78.0, 78.01, 78.02], "parallel": [79.9]}.items():
        for run, value in zip(suite.runs("toy", "paper", "vit", series), values, strict=False):
            synthetic.write_short_run(run, tmp_path, value)
    whole = score(audit(suite, "paper", tmp_path))
    assert whole is not None
    assert (whole.reproduced, whole.fails) == (pytest.approx(1 / 16), pytest.approx(1 / 16))
    assert whole.why["seeds missing"] == pytest.approx(1 / 10 + 1 / 16)  # of parallel, also for the claim on accuracies


def test_a_reference_of_our_own_reproduces_no_published_number(declare, tmp_path: Path):
    """It is judged as before, in the words of its row only."""
    folder = declare("")
    file = folder / "toy/published.yaml"
    text = file.read_text()
    for old, new in (("h4_top1", "status: measured"), ("qsr_top1", "status: measured")):
        line = next(line for line in text.splitlines() if f"id: {old}," in line)
        text = text.replace(line, line.replace("status: verified", new))
    file.write_text(text)
    suite = load_suite(folder)
    for series, values in {"h4": [79.3, 79.32, 79.34], "qsr": [78.0, 78.01, 78.02]}.items():
        for run, value in zip(suite.runs("toy", "paper", "vit", series), values, strict=True):
            synthetic.write_short_run(run, tmp_path, value)
    found = audit(suite, "paper", tmp_path)
    rows = {row.id: row for row in found.rows}
    assert (rows["h4_top1"].verdict, rows["qsr_top1"].verdict) == ("reproduced", "not reproduced")
    whole = score(found)
    assert whole is not None
    assert (whole.reproduced, whole.fails) == (0, 0)
    assert whole.why["our own reference"] == pytest.approx(2 / 16)
    assert "reproduced" not in totals(found).measured
    assert "Of 2 references of our own, which nobody published, 1 reproduced, 1 not reproduced." in headline(found)


@pytest.fixture
def declare(tmp_path: Path) -> Callable[[str], Path]:
    """The toy paper with these weights in its paper.yaml."""

    def declare(weights: str) -> Path:
        folder = shutil.copytree(CONFIGS, tmp_path / "configs", dirs_exist_ok=True)
        file = folder / "toy/paper.yaml"
        file.write_text((CONFIGS / "toy/paper.yaml").read_text() + "\n" + weights)
        return folder

    return declare


def test_weights_are_shares_among_siblings(declare, finished: Path):
    section, entries = "{title: Accuracy, items: [table1], weight: 3}", "{h4_top1: 9, qsr_beats_h4: 6}"
    weights = f"score: {{sections: [{section}], entries: {entries}}}"
    result = audit(load_suite(declare(weights)), "smoke", finished)
    whole = score(result)
    assert whole is not None
    assert {name: part.weight for name, part in whole.parts["toy"].parts.items()} == {"Accuracy": 0.75, "(other)": 0.25}
    places = {line.id: line.place for line in result.lines if line.place}
    assert places["h4_top1"].weight == pytest.approx(0.75 * 9 / 16)
    assert places["qsr_top1"].weight == pytest.approx(0.75 / 16)
    assert (places["qsr_beats_h4"].section, places["qsr_beats_h4"].item) == ("(other)", "fig5")
    assert whole.holds == pytest.approx(0.25 * 8 / 10)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ("score: {sections: [{title: A, items: [table9]}]}", "score.sections[0].items[0]: found 'table9'"),
        ("score: {sections: [{title: A, items: [fig5]}, {title: B, items: [fig5]}]}", "found fig5, which is in 'A'"),
        ("score: {sections: [{title: A, items: [fig5]}, {title: A, items: [fig6]}]}", "found 'A' again"),
        ("score: {items: {fig9: 2}}", "score.items.fig9: found 'fig9'"),
        ("score: {entries: {h4_top: 2}}", "did you mean 'h4_top1'?"),
        ("score: {items: {fig5: 0}}", "found 0, allowed: number > 0"),
    ],
)
def test_a_mistake_in_the_weights_is_one_line(declare, weights: str, expected: str):
    with pytest.raises(ConfigError) as error:
        load_suite(declare(weights))
    [line] = error.value.lines
    assert expected in line
    assert "toy/paper.yaml:" in line


def test_claims_and_numbers_do_not_share_an_id(declare):
    folder = declare("")
    file = folder / "toy/claims.yaml"
    file.write_text(file.read_text().replace("id: qsr_beats_h4,", "id: qsr_top1,"))
    with pytest.raises(ConfigError, match="found 'qsr_top1', which is a published value, allowed: a name of its own"):
        load_suite(folder)


def test_the_score_is_the_first_thing_everywhere(suite: Suite, finished: Path, tmp_path: Path):
    content = json.loads(write(audit(suite, "smoke", finished), tmp_path).read_text())
    assert list(content)[:2] == ["scale", "score"]
    assert content["score"]["holds"] == pytest.approx(0.3)
    assert content["headline"][0] == (
        "Score at smoke scale, by weight: reproduced 0.0 %, holds 30.0 %, fails 0.0 %, undecided 70.0 % (computed "
        "only 22.5 %, value unknown 6.2 %, source unverified 6.2 %, not comparable 6.2 %, at another scale 28.7 %)."
    )
    assert list(content["outcomes"]) == list(OUTCOMES)


def with_status(folder: Path, claim: str, status: str) -> Suite:
    """The toy paper with this status of a claim."""
    file = folder / "toy/claims.yaml"
    lines = file.read_text().splitlines()
    [index] = [index for index, line in enumerate(lines) if f"id: {claim}," in line]
    lines[index] = re.sub(r"status: \w+", f"status: {status}", lines[index])
    file.write_text("\n".join(lines))
    return load_suite(folder)


def test_a_claim_of_our_own_has_no_weight(declare, results: Path, capsys: pytest.CaptureFixture[str]):
    """It is tested, shown and found by its id, counted apart, and fails no check."""
    folder = declare("")
    for name in ("qsr_beats_h4", "qsr_reaches_parallel", "accuracies"):
        suite = with_status(folder, name, "ours")
    for run in suite.runs("toy", "smoke", "vit", "qsr"):
        synthetic.rewrite(results / run.directory, final={"val_top1": 90.0 + run.seed / 10, "val_loss": 1.0})
    found = audit(suite, "smoke", results)
    whole = score(found)
    assert whole is not None
    assert (whole.holds, whole.fails) == (0, 0)
    assert whole.why["computed only"] == pytest.approx(1 / 4 + 2 / 16)  # of two claims of the paper
    assert totals(found).claims == {"not comparable": 1, "computed": 1}
    assert totals(found).own_claims == {"fails": 3}
    assert "Of 3 claims of our own, 3 fail." in headline(found)
    where = ["audit", "--configs", str(folder), "--results", str(results), "--scale", "smoke"]
    assert main([*where, "--check"]) == 0
    capsys.readouterr()
    assert main([*where, "toy/accuracies"]) == 0
    assert capsys.readouterr().out.startswith("toy/accuracies: fails: ")


def test_a_claim_that_the_paper_may_not_make_counts_for_nothing(declare, finished: Path):
    found = audit(with_status(declare(""), "qsr_beats_h4", "unverified"), "smoke", finished)
    [row] = [row for row in found.claims if row.id == "qsr_beats_h4"]
    assert row.place is not None
    assert (row.verdict, row.place.outcome, row.place.why) == ("holds", "undecided", "source unverified")
    whole = score(found)
    assert whole is not None
    assert whole.holds == pytest.approx(2 / 10)


def test_a_claim_of_our_own_has_no_place_among_the_weights(declare):
    folder = declare("score: {entries: {qsr_beats_h4: 2}}")
    with pytest.raises(ConfigError, match=r"score\.entries\.qsr_beats_h4: found 'qsr_beats_h4'"):
        with_status(folder, "qsr_beats_h4", "ours")


def test_ids_ask_for_single_verdicts(suite: Suite, finished: Path, capsys: pytest.CaptureFixture[str]):
    where = ["audit", "--configs", str(CONFIGS), "--results", str(finished), "--scale", "smoke"]
    before = sorted(finished.rglob("audit*"))
    assert main([*where, "--json", "qsr_beats_h4", "toy/h4_top1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {name: line["verdict"] for name, line in found.items()} == {
        "toy/qsr_beats_h4": "holds",
        "toy/h4_top1": "not comparable",
    }
    assert found["toy/qsr_beats_h4"]["place"]["outcome"] == "holds"
    assert main([*where, "toy/qsr_beats_h4"]) == 0
    assert capsys.readouterr().out.startswith("toy/qsr_beats_h4: holds: effect +")
    assert main([*where, "toy/qsr_beats_h5"]) == 2
    assert capsys.readouterr().err == (
        "resync: error: claim or published number: found 'toy/qsr_beats_h5', allowed: an id in audit.json; did you "
        "mean 'toy/qsr_beats_h4'?\n"
    )
    assert main([*where, "qsr_beats_h5"]) == 2
    assert capsys.readouterr().err.endswith("did you mean 'qsr_beats_h4'?\n")
    assert main([*where, "toi/qsr_beats_h4"]) == 2
    assert capsys.readouterr().err == "resync: error: paper: found 'toi', allowed: toy; did you mean 'toy'?\n"
    for beside in (["--paper", "toy"], ["qsr_beats_h4"]):
        assert main([*where, "--gather", *beside]) == 2
        assert "--gather: has no effect beside " in capsys.readouterr().err
    assert sorted(finished.rglob("audit*")) == before

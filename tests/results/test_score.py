"""The score of an audit: what is counted as what."""

import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import synthetic

from resync.base.settings.errors import ConfigError
from resync.papers.audit import Audit, audit
from resync.papers.audit.headline import totals
from resync.papers.audit.in_words import with_verdict
from resync.papers.audit.score import STATUSES, counted_in_words, score
from resync.papers.paper import Suite, load_suite
from resync.tools.cli import main

CONFIGS = Path(__file__).parent / "configs"
TOP1 = {"h4": [79.3, 79.32, 79.34], "qsr": [78.0, 78.01, 78.02], "parallel": [79.9]}


def at_paper_scale(suite: Suite, results: Path) -> Audit:
    """Made-up results of which one is reproduced, one is not, and one lacks seeds."""
    synthetic.write_paper_scale(suite, results, TOP1)
    return audit(suite, "paper", results)


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    """A copy of the toy paper."""
    return shutil.copytree(CONFIGS, tmp_path / "configs")


def of(result: Audit) -> dict[str, Any]:
    return score(map(vars, result.lines), result.scale)


def test_without_runs_everything_is_untested_for_a_reason(without_runs: dict[str, Audit]):
    for result in without_runs.values():
        found = of(result)
        assert found["exploratory"] == {status: {} for status in STATUSES}
        for counts in (found["numbers"], *found["claims"].values()):
            assert set(counts) <= {"untested"}
        assert sum(found["numbers"].values()) == sum(each["numbers"]["untested"] for each in found["papers"].values()
                                                     if each["numbers"])  # fmt: skip
        for name, reasons in found["because"].items():
            counted = found["numbers"] if name == "numbers" else Counter()
            for counts in found["claims"].values() if name == "claims" else ():
                counted += counts
            assert sum(reasons.values()) == sum(counted.values())


def test_claims_count_by_status_and_verdict(suite: Suite, finished: Path):
    found = of(audit(suite, "smoke", finished))
    assert found["numbers"] == {"untested": 5}
    assert found["claims"] == {"verified": {"agrees": 2}, "secondary": {"agrees": 1},
                               "derived": {"untested": 1}, "unverified": {}}  # fmt: skip
    assert found["because"]["claims"] == {"runs decide": 3, "arithmetic": 1}
    assert found["papers"] == {"toy": {name: found[name] for name in found if name != "papers"}}


def test_what_is_exploratory_is_counted_apart(suite: Suite, finished: Path):
    """A claim that is untested counts as nothing else."""
    result = audit(suite, "smoke", finished)
    claims = [vars(replace(claim, exploratory=claim.id)) for claim in result.claims]
    assert score(claims, "smoke")["claims"]["verified"] == {}
    assert score(claims, "smoke")["exploratory"]["verified"] == {"agrees": 2}
    rest = [vars(claim) for claim in result.claims]
    assert counted_in_words(rest) == "of 5 claims 3 are tested: 3 agree; 2 are untested"
    assert counted_in_words(claims) == "of 5 claims none is tested; 3 are exploratory: 3 agree; 2 are untested"
    assert counted_in_words([claims[0], rest[0]]) == "of 2 claims 1 is tested: 1 agrees; 1 is exploratory: 1 agrees"


def test_measured_numbers_count_by_their_verdicts(suite: Suite, tmp_path: Path):
    found = of(at_paper_scale(suite, tmp_path))
    assert {word: found["numbers"][word] for word in ("agrees", "disagrees")} == {"agrees": 1, "disagrees": 1}
    assert found["because"]["numbers"]["seeds do not decide"] == 1


def test_a_reference_of_our_own_reproduces_no_published_number(configs: Path, tmp_path: Path):
    """It is judged as before, in the words of its row only."""
    file = configs / "toy/published.yaml"
    text, count = re.subn(r"(id: (?:h4|qsr)_top1,.*status: )verified", r"\1measured", file.read_text())
    assert count == 2
    file.write_text(text)
    found = at_paper_scale(load_suite(configs), tmp_path)
    assert set(of(found)["numbers"]) == {"open", "untested"}
    assert totals(found)["own_references"] == {"agrees": 1, "disagrees": 1}


def test_claims_and_numbers_do_not_share_an_id(configs: Path):
    file = configs / "toy/claims.yaml"
    file.write_text(file.read_text().replace("id: qsr_beats_h4,", "id: qsr_top1,"))
    with pytest.raises(ConfigError, match="found 'qsr_top1', which is a published value, allowed: a name of its own"):
        load_suite(configs)


def with_status(folder: Path, claim: str, status: str) -> Suite:
    """The toy paper with this status of a claim."""
    file = folder / "toy/claims.yaml"
    lines = file.read_text().splitlines()
    [index] = [index for index, line in enumerate(lines) if f"id: {claim}," in line]
    lines[index] = re.sub(r"status: \w+", f"status: {status}", lines[index])
    file.write_text("\n".join(lines))
    return load_suite(folder)


def test_a_claim_of_our_own_is_not_counted(configs: Path, results: Path, capsys: pytest.CaptureFixture[str]):
    """It is tested, shown and found by its id, counted apart, and fails no check."""
    for name in ("qsr_beats_h4", "qsr_reaches_parallel", "accuracies"):
        suite = with_status(configs, name, "ours")
    for run in suite.runs("toy", "smoke", "vit", "qsr"):
        synthetic.rewrite(results / run.directory, final={"val_top1": 90.0 + run.seed / 10, "val_loss": 1.0})
    found = audit(suite, "smoke", results)
    assert totals(found)["claims"] == {"untested": 2}
    assert totals(found)["own_claims"] == {"disagrees": 2, "untested": 1}
    where = ["audit", "--configs", str(configs), "--results", str(results), "--scale", "smoke"]
    assert main([*where, "--check"]) == 0
    capsys.readouterr()
    assert main([*where, "toy/accuracies"]) == 0
    assert capsys.readouterr().out.startswith("toy/accuracies: disagrees (runs decide): ")


def test_a_claim_that_the_paper_may_not_make_is_counted_by_its_status(configs: Path, finished: Path):
    found = of(audit(with_status(configs, "qsr_beats_h4", "unverified"), "smoke", finished))
    assert (found["claims"]["unverified"], found["claims"]["verified"]["agrees"]) == ({"agrees": 1}, 1)


def test_a_claim_in_words_is_statement_outcome_and_last_what_was_trained():
    side = {"label": "QSR", "ours": {"mean": 42.74, "std": 0.2}}
    effect = {"difference": -0.93, "low": -1.05, "high": -0.81, "n": [6]}
    tried = {
        "statement": "Here (ViT on CIFAR-10, 8 workers, 60 epochs): QSR ends higher.", "verdict": "untested",
        "because": "outside its regime", "reason": "untuned rates; tested all the same: disagrees, effect -0.93",
        "exploratory": "late", "sides": [side], "effects": [effect], "at_least": 0.3, "unit": "%",
    }  # fmt: skip
    first, outcome, trained = map(str.strip, with_verdict(tried).splitlines())
    assert (first, trained) == ("QSR ends higher.", "(ViT on CIFAR-10, 8 workers, 60 epochs)")
    assert outcome.startswith("not tested here (untuned rates); measured all the same: QSR 42.7")
    assert "-0.93 points (-1.05 to -0.81); claimed at least +0.30, n = 6" in outcome
    assert with_verdict(tried | {"verdict": "open"}).splitlines()[1].startswith("    open, exploratory: QSR 42.7")
    follows = with_verdict(tried | {"because": "arithmetic"})
    assert follows.splitlines()[1].startswith("    follows from the settings, without a run: QSR 42.7")
    nothing = tried | {"sides": [], "effects": [], "statement": "QSR ends higher.", "reason": "no run"}
    assert with_verdict(nothing) == "QSR ends higher.\n    not tested here (no run)"


def test_ids_ask_for_single_verdicts(suite: Suite, finished: Path, capsys: pytest.CaptureFixture[str]):
    where = ["audit", "--configs", str(CONFIGS), "--results", str(finished), "--scale", "smoke"]
    before = sorted(finished.rglob("audit*"))
    assert main([*where, "--json", "qsr_beats_h4", "toy/h4_top1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {name: line["verdict"] for name, line in found.items()} == {
        "toy/qsr_beats_h4": "agrees",
        "toy/h4_top1": "untested",
    }
    assert main([*where, "toy/qsr_beats_h4"]) == 0
    assert capsys.readouterr().out.startswith("toy/qsr_beats_h4: agrees (runs decide): effect +")
    for wrong, meant in (("toy/qsr_beats_h5", "toy/qsr_beats_h4"), ("qsr_beats_h5", "qsr_beats_h4"), ("toi/x", "toy")):
        assert main([*where, wrong]) == 2
        assert capsys.readouterr().err.endswith(f"did you mean '{meant}'?\n")
    for beside in (["toy"], ["qsr_beats_h4"]):
        assert main([*where, "--gather", *beside]) == 2
        assert "--gather: has no effect beside " in capsys.readouterr().err
    assert sorted(finished.rglob("audit*")) == before

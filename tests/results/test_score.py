"""The score of an audit: what is counted as what."""

import json
import re
import shutil
from pathlib import Path

import pytest
import synthetic

from resync.audit import Audit, audit
from resync.audit.headline import totals
from resync.audit.score import DECIDED, UNDECIDED, score
from resync.cli import main
from resync.paper import Suite, load_suite
from resync.settings.errors import ConfigError

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


def test_without_runs_everything_is_undecided_and_accounted_for(without_runs: dict[str, Audit]):
    for result in without_runs.values():
        found = score(result)
        for of, word in (("numbers", "reproduced"), ("claims", "holds")):
            assert found[of][word] == 0
            assert sum(found[of].values()) == sum(sum(each[of].values()) for each in found["papers"].values())
            assert found[of].keys() <= (DECIDED | UNDECIDED).keys() - {"seeds missing", "not decided", "better"}
        assert found["papers"]["qsr"]["numbers"]["computed only"] > 0
        assert found["papers"]["qsr"]["numbers"]["GPU hours needed"] > 0


def test_claims_and_numbers_have_one_outcome_each(suite: Suite, finished: Path):
    found = score(audit(suite, "smoke", finished))
    numbers = {"reproduced": 0, "not reproduced": 0, "computed only": 2, "value unknown": 1, "source unverified": 1}
    assert found["numbers"] == numbers | {"not comparable": 1, "at another scale": 3}
    assert found["claims"] == {"holds": 3, "contradicted": 0, "computed only": 1, "at another scale": 1}
    assert found["papers"] == {"toy": {"numbers": found["numbers"], "claims": found["claims"]}}


def test_measured_numbers_count_by_their_verdicts(suite: Suite, tmp_path: Path):
    found = score(at_paper_scale(suite, tmp_path))
    assert (found["numbers"]["reproduced"], found["numbers"]["not reproduced"]) == (1, 1)
    assert (found["numbers"]["seeds missing"], found["claims"]["seeds missing"]) == (1, 1)


def test_a_reference_of_our_own_reproduces_no_published_number(configs: Path, tmp_path: Path):
    """It is judged as before, in the words of its row only."""
    file = configs / "toy/published.yaml"
    text, count = re.subn(r"(id: (?:h4|qsr)_top1,.*status: )verified", r"\1measured", file.read_text())
    assert count == 2
    file.write_text(text)
    found = at_paper_scale(load_suite(configs), tmp_path)
    counts = score(found)["numbers"]
    assert (counts["reproduced"], counts["not reproduced"], counts["our own reference"]) == (0, 0, 2)
    assert "reproduced" not in totals(found)["measured"]
    assert totals(found)["own_references"] == {"reproduced": 1, "not reproduced": 1}


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
    assert score(found)["claims"] == {"holds": 0, "contradicted": 0, "computed only": 1, "at another scale": 1}
    assert totals(found)["claims"] == {"not comparable": 1, "computed": 1}
    assert totals(found)["own_claims"] == {"contradicted": 2, "outside its regime": 1}
    where = ["audit", "--configs", str(configs), "--results", str(results), "--scale", "smoke"]
    assert main([*where, "--check"]) == 0
    capsys.readouterr()
    assert main([*where, "toy/accuracies"]) == 0
    assert capsys.readouterr().out.startswith("toy/accuracies: contradicted: ")


def test_a_claim_that_the_paper_may_not_make_counts_for_nothing(configs: Path, finished: Path):
    found = audit(with_status(configs, "qsr_beats_h4", "unverified"), "smoke", finished)
    [row] = [row for row in found.claims if row.id == "qsr_beats_h4"]
    assert (row.verdict, row.outcome) == ("holds", "source unverified")
    assert score(found)["claims"]["holds"] == 2


def test_ids_ask_for_single_verdicts(suite: Suite, finished: Path, capsys: pytest.CaptureFixture[str]):
    where = ["audit", "--configs", str(CONFIGS), "--results", str(finished), "--scale", "smoke"]
    before = sorted(finished.rglob("audit*"))
    assert main([*where, "--json", "qsr_beats_h4", "toy/h4_top1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {name: line["verdict"] for name, line in found.items()} == {
        "toy/qsr_beats_h4": "holds",
        "toy/h4_top1": "not comparable",
    }
    assert found["toy/qsr_beats_h4"]["outcome"] == "holds"
    assert main([*where, "toy/qsr_beats_h4"]) == 0
    assert capsys.readouterr().out.startswith("toy/qsr_beats_h4: holds: effect +")
    for wrong, meant in (("toy/qsr_beats_h5", "toy/qsr_beats_h4"), ("qsr_beats_h5", "qsr_beats_h4"), ("toi/x", "toy")):
        assert main([*where, wrong]) == 2
        assert capsys.readouterr().err.endswith(f"did you mean '{meant}'?\n")
    for beside in (["--paper", "toy"], ["qsr_beats_h4"]):
        assert main([*where, "--gather", *beside]) == 2
        assert "--gather: has no effect beside " in capsys.readouterr().err
    assert sorted(finished.rglob("audit*")) == before

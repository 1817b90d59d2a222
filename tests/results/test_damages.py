"""One damaged run among others: named in one line by everything that reads results, and the others are shown."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import synthetic
from synthetic import collected, edit

from resync.papers.audit import audit, sentence, write
from resync.papers.paper import Suite
from resync.papers.render.item import load
from resync.papers.report import report
from resync.runs.results.runs import state_of
from resync.runs.results.status import progress, table
from resync.runs.results.summary import DIGESTS, NAME
from resync.runs.run import Run
from resync.tools.cli import main

Damage = Callable[[Path], object]
CONFIGS = Path(__file__).parent / "configs"


def replaced(name: str, content: bytes | str) -> Damage:
    return lambda folder: (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def edited(name: str, old: str, new: str) -> Damage:
    return lambda folder: edit(folder / name, old, new)


def cell(name: str, value: str) -> Damage:
    """Another value in the last cell of a table."""
    return lambda folder: (folder / name).write_text((folder / name).read_text().rpartition(",")[0] + f",{value}\n")


def entry(keys: str, value: Any) -> Damage:
    """Another entry in the summary, whose digest is not renewed."""

    def damage(folder: Path) -> None:
        summary = json.loads((folder / NAME).read_text())
        inner = summary
        *outer, last = keys.split(".")
        for key in outer:
            inner = inner[key]
        inner[last] = value
        (folder / NAME).write_text(json.dumps(summary))

    return damage


def resealed(keys: str, value: Any) -> Damage:
    """Another entry in the summary, with a digest that fits: only what it says of metrics.csv is wrong."""

    def damage(folder: Path) -> None:
        entry(keys, value)(folder)
        (folder / NAME).write_text(synthetic.resealed((folder / NAME).read_text(), lambda summary: None))

    return damage


def without_last_row(name: str) -> Damage:
    return lambda folder: (folder / name).write_text("\n".join((folder / name).read_text().split("\n")[:-2]) + "\n")


CHANGED, EDITED = "changed since it was written: SHA-256", "its entries have another SHA-256"
DAMAGES: dict[str, tuple[Damage, str]] = {
    f"{name} {kind}": (damage, f"{name}: {reason}" if reason else name)
    for name in ("metrics.csv", "steps.csv")
    for kind, damage, reason in (
        ("nan", cell(name, "nan"), CHANGED),
        ("inf", cell(name, "inf"), CHANGED),
        ("1e999", cell(name, "1e999"), CHANGED),
        ("number", cell(name, "0.125"), CHANGED),
        ("quoted line break", cell(name, '"1\n2"'), ""),
        ("last row lost", without_last_row(name), CHANGED),
        ("garbage", replaced(name, b"\xff\x00\n"), "not text"),
        ("terminal codes", replaced(name, "\x1b[2J,\n"), "not a file of resync"),
        ("folder", lambda folder, name=name: ((folder / name).unlink(), (folder / name).mkdir()), ""),
    )
}
DAMAGES |= {
    "steps.csv emptied": (replaced("steps.csv", ""), f"steps.csv: {CHANGED}"),
    "steps.csv header only": (
        lambda folder: (folder / "steps.csv").write_text((folder / "steps.csv").read_text().partition("\n")[0] + "\n"),
        f"steps.csv: {CHANGED}",
    ),
    "short line": (edited("steps.csv", "\n20,", "\n20\n21,"), "steps.csv:3: found 1 numbers, allowed: 10"),
    "no metrics": (lambda folder: (folder / "metrics.csv").unlink(), "metrics.csv: missing, although summary.json"),
    "foreign column": (edited("metrics.csv", "val_top1", "accuracy"), "it has a column 'accuracy'"),
    "column of another file": (
        edited("steps.csv", "step_data_seconds", "evaluation_seconds"),
        "it has a column 'evaluation_seconds'",
    ),
    "lacking column": (edited("metrics.csv", "step,", "val_top1,"), "the column step is missing"),
    "no number": (edited("metrics.csv", "\n22,", "\nmany,"), "metrics.csv:3: step: found 'many', allowed: an integer"),
    "steps repeated": (edited("metrics.csv", "\n44,", "\n22,"), "steps do not increase"),
    "foreign summary": (replaced(NAME, '{"status": "finished"}'), "not a run's summary, run, config_hash"),
    "strange status": (resealed("status", "ok"), "status: found 'ok', Input should be 'finished' or 'diverged'"),
    "no time": (resealed("started", "yesterday"), "started: found 'yesterday', "),
    "a time without its zone": (resealed("started", "2026-01-01T00:00:00"), "started: found '2026-01-01T00:00:00', "),
    "summary empty": (replaced(NAME, ""), "summary.json: not JSON"),
    "summary half": (replaced(NAME, '{"status": "finished", '), "summary.json: not JSON"),
    "summary garbage": (replaced(NAME, b"\xff\xfe"), "summary.json: not text"),
    "summary null": (replaced(NAME, "null"), "summary.json: not a run's summary, everything missing"),
    "summary deep": (replaced(NAME, "[" * 100_000), "summary.json: not a file of this program: nested too deeply"),
    "summary huge number": (replaced(NAME, "1" * 5000), "summary.json: not JSON"),
    "summary deep entry": (
        edited(NAME, '"resumed_from": []', f'"resumed_from": {"[" * 900}{"]" * 900}'),
        f"summary.json: edited or damaged: {EDITED}",
    ),
    "NaN final": (edited(NAME, '"val_top1": ', '"val_top1": NaN, "x": '), "summary.json: not JSON"),
    "no digests": (edited(NAME, f'"{DIGESTS}"', '"other"'), "summary.json: has no SHA-256 of its entries"),
    "digests of no kind": (entry(DIGESTS, "0"), "summary.json: has no SHA-256 of its entries"),
    "a digest edited": (entry(f"{DIGESTS}.another", "0"), EDITED),
    "final edited": (entry("final.val_top1", 99.0), EDITED),
    "final null": (entry("final", None), EDITED),
    "steps a string": (entry("steps", "x"), EDITED),
    "seconds lack one": (entry("seconds", {"training": 1.0}), EDITED),
    "huge": (entry("rounds", 10**400), EDITED),
    "diverged a string": (entry("diverged", "yes"), EDITED),
    "another device": (entry("launch.device", "H100"), EDITED),
    "wrong final": (resealed("final.val_top1", 99.0), "summary.json: final.val_top1 is 99, by metrics.csv 96."),
    "wrong best": (resealed("best.val_top1", 99.0), "summary.json: best.val_top1 is 99, by metrics.csv 9"),
    "final of no column": (resealed("final.val_top5", 99.0), "final.val_top5 is 99, by metrics.csv nothing"),
    "wrong rounds": (resealed("rounds", 3), "summary.json: rounds is 3, by metrics.csv 165"),
    "wrong volume": (resealed("volume_percent", 3.5), "summary.json: volume_percent is 3.5, by metrics.csv 25"),
    "wrong steps": (resealed("steps", 300), "summary.json: steps is 300, by metrics.csv 660"),
    "wrong seconds": (resealed("seconds.training", 1.5), "summary.json: seconds.training is 1.5, by metrics.csv "),
}


@pytest.fixture(scope="module")
def place(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(finished, tmp_path_factory.mktemp("damages") / "results")


@pytest.fixture
def damaged(place: Path, finished: Path, suite: Suite) -> Run:
    """Seed 1 of H = 4, whose folder is whole again before every test."""
    run = suite.runs("toy", "smoke", "vit", "h4")[1]
    shutil.rmtree(place / run.directory, ignore_errors=True)
    shutil.copytree(finished / run.directory, place / run.directory)
    assert state_of(run, place).status == "finished"
    return run


@pytest.mark.parametrize("name", DAMAGES)
def test_a_run_that_does_not_fit_is_damaged_for_a_reason_of_one_line(name: str, damaged: Run, place: Path):
    damage, reason = DAMAGES[name]
    damage(place / damaged.directory)
    state = state_of(damaged, place)
    assert (state.status, state.result) == ("damaged", None)
    assert reason in state.reason
    assert str(damaged.directory) in state.reason
    assert state.reason.isprintable()
    assert len(state.reason) < 600


def test_everything_names_a_damaged_run_and_shows_the_others(suite: Suite, damaged: Run, place: Path, tmp_path: Path):
    cell("metrics.csv", "0.125")(place / damaged.directory)
    runs = suite.runs("toy", "smoke")
    line = f"{damaged.id} (smoke): damaged: {state_of(damaged, place).reason}"
    frame = collected(runs, place)
    assert frame.attrs == {"missing": [], "damaged": [line]}
    assert len(frame.groupby(["series", "seed"])) == len(runs) - 1
    listed = table(progress(run, place) for run in runs)
    assert listed.count("metrics.csv") == 1
    assert listed.endswith("12 runs: 11 finished, 1 damaged")
    series = load(suite, "toy", "fig5", "smoke", place).series[1]
    assert (series.note, series.evidence("val_top1").n) == ("1 of 3 damaged", 2)
    result = audit(suite, "smoke", place)
    assert result.damaged == {"toy": (line,)}
    assert result.failed
    assert sentence(result).endswith(" 1 damaged run.")
    assert json.loads(write(result, place / "smoke").read_text())["damaged"] == {"toy": [line]}
    site = report(suite, "smoke", place, tmp_path).parent
    assert f"<li>{line}</li>" in (site / "audit.html").read_text()
    assert "damaged" in (site / "runs.html").read_text()


def test_the_verbs_end_well_beside_a_damaged_run(
    damaged: Run, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    replaced(NAME, "[" * 100_000)(place / damaged.directory)
    common = ["--configs", str(CONFIGS), "--results", str(place)]
    figures = ["--figures", str(tmp_path)]
    assert main(["status", *common]) == 0
    assert capsys.readouterr().out.count("nested too deeply") == 1
    assert main(["status", *common, "--problems"]) == 1
    _, line, _, counts = capsys.readouterr().out.splitlines()
    assert line.startswith(damaged.id)
    assert "nested too deeply" in line
    assert counts == "smoke scale, 12 runs: 11 finished, 1 damaged"
    for verb in (["collect", "toy"], ["render", "toy/table1", *figures]):
        assert main([*verb, *common]) == 0
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith(f"resync: warning: {damaged.id}")
        assert "nested too deeply" in line
    assert main(["audit", *common]) == 0
    assert "1 damaged run." in capsys.readouterr().out
    assert main(["audit", *common, "--check"]) == 1
    assert main(["report", *common, *figures]) == 0


@pytest.mark.parametrize(
    "content", ["[]", '{"state": "failed"}', '{"state": 3, "config_hash": "", "step": "x", "reason": "", "time": ""}',
                "[" * 100_000, '{"state": "failed", "config_hash": "0", "step": [], "reason": "", "time": ""}'],
)  # fmt: skip
def test_a_state_of_another_kind_is_damaged(content: str, damaged: Run, place: Path):
    (place / damaged.directory / NAME).unlink()
    (place / damaged.directory / "state.json").write_text(content)
    found = progress(damaged, place)
    assert found.status == "damaged"
    assert "state.json: not " in found.reason
    assert found.reason.isprintable()


@pytest.mark.parametrize("content", [b"\xff\xfe\n\n", b"step\nx\n", b"step,step_data_seconds\n1,2,3\n", b"a\n" * 30])
def test_steps_that_cannot_be_read_are_no_progress(content: bytes, damaged: Run, place: Path):
    (place / damaged.directory / NAME).unlink()
    (place / damaged.directory / "steps.csv.partial").write_bytes(content)
    assert progress(damaged, place).step == 0


@pytest.mark.parametrize("content", ["[" * 100_000, "{}", "[]", "null", '{"sentence": NaN}'])
def test_an_audit_that_cannot_be_read_is_one_line(content: str, suite: Suite, finished: Path, tmp_path: Path):
    (tmp_path / "smoke").mkdir()
    (tmp_path / "smoke/audit.json").write_text(content)
    with pytest.raises(ValueError, match=r"^\S*smoke/audit.json: not [^\n]*$"):
        report(suite, "smoke", tmp_path, tmp_path)


@pytest.mark.parametrize("verb", ["status", "report", "audit"])
def test_results_that_are_not_there_are_an_error_and_not_made(verb: str, tmp_path: Path, capsys):
    nowhere = tmp_path / "nowhere"
    assert main([verb, "--configs", str(CONFIGS), "--results", str(nowhere)]) == 2
    assert capsys.readouterr().err == f"resync: error: --results {nowhere}: no such folder\n"
    assert not nowhere.exists()

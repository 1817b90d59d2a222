"""Published logs of runs: imported from a table, and what the audit computes again from them."""

import hashlib
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy import stats

from resync.base.settings.errors import ConfigError
from resync.papers.audit import audit
from resync.papers.audit.headline import totals
from resync.papers.importer import import_runs
from resync.papers.importer.log import LogError
from resync.papers.paper.suite import load_suite

ROOT = Path(__file__).parents[2]
BASE, NEW = [3.2781, 3.2790, 3.2769], [3.2776, 3.2771, 3.2779, 3.2770]
LOGS = """
tables:
  - {id: track, origin: somewhere, group: result, run: [log, run], step: step, value: loss}
groups:
  - {id: base, label: Base, name: base, step: 200, mean: 3.2780, n: 3}
  - {id: new, label: New, name: new, step: 160, mean: 3.2774, n: 4}
comparisons:
  - {id: new_beats_base, statement: it does, better: new, than: base, source: there,
     rule: {slope: 4.5e-5, least: 0.004, source: there}}
"""


def table_of(base: list[float], new: list[float]) -> str:
    """Three logs of one run each, and one log with all runs of the new result; the rows before the last mislead."""
    rows = [f"base,log{index},0,{step},{value + late}" for index, value in enumerate(base)
            for step, late in ((100, 1), (200, 0), (300, 2))]  # fmt: skip
    rows += [f"new,log9,{index},{step},{value + late}" for index, value in enumerate(new)
             for step, late in ((100, 1), (160, 0))]  # fmt: skip
    return "\n".join(["result,log,run,step,loss", *rows, ""])


@pytest.fixture
def declared(tmp_path: Path):
    """A function that declares the table with changes of groups and comparison, and returns suite and table."""

    def declare(content: str | None = None, base: dict | None = None, new: dict | None = None, rule: bool = True):
        content = content or table_of(BASE, NEW)
        folder = tmp_path / "configs"
        (folder / "demo/experiments").mkdir(parents=True, exist_ok=True)
        shutil.copytree(ROOT / "paper_configs/scales", folder / "scales", dirs_exist_ok=True)
        (folder / "demo/paper.yaml").write_text("title: a\nauthors: [b]\nvenue: c\n")
        logs = yaml.safe_load(LOGS)
        logs["tables"][0]["sha256"] = hashlib.sha256(content.encode()).hexdigest()
        for group, changes in zip(logs["groups"], (base, new), strict=True):
            group |= {"table": "track", "metric": "val_loss", "source": "there"} | (changes or {})
        if not rule:
            del logs["comparisons"][0]["rule"]
        (folder / "demo/logs.yaml").write_text(yaml.safe_dump(logs))
        (tmp_path / "table.csv").write_text(content)
        return load_suite(folder), tmp_path / "table.csv"

    return declare


def audited(declared, tmp_path: Path, **changes):
    suite, table = declared(**changes)
    import_runs(suite, "demo/track", table, tmp_path / "results", replace=True)
    found = audit(suite, "paper", tmp_path / "results")
    return {row.id: row for row in found.rows}, found.claims[0]


def test_a_published_mean_is_verified_if_it_follows_from_the_logs(declared, tmp_path):
    rows, _ = audited(declared, tmp_path, new={"std": 0.0004})
    for name, values in (("base", BASE), ("new", NEW)):
        assert sorted(rows[name].ours.values) == sorted(values)
        assert rows[name].ours.mean == pytest.approx(np.mean(values))
        assert (rows[name].verdict, rows[name].because) == ("agrees", "logs of others")
        assert rows[name].reference.status == "verified"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"mean": 3.2781}, "the logs give mean 3.27800, published 3.2781"),
        ({"n": 5}, "the logs give 3 runs, published 5"),
        ({"std": 0.0009}, "the logs give deviation 0.00105, published 0.0009"),
        ({"std": 0.00106}, "the logs give deviation 0.001054, published 0.00106"),
    ],
)
def test_one_that_does_not_follow_is_an_unverified_source(declared, tmp_path, changes, expected):
    rows, _ = audited(declared, tmp_path, base=changes)
    assert (rows["base"].because, rows["base"].reference.status) == ("source uncertain", "unverified")
    assert rows["base"].reason == expected


def test_a_comparison_has_welchs_test_and_the_rule_of_the_benchmark(declared, tmp_path):
    """Both written out; the steps saved are worth their number times the slope."""
    _, claim = audited(declared, tmp_path)
    saved = 40 * 4.5e-5
    [effect] = claim.effects
    difference = np.mean(BASE) - np.mean(NEW) + saved
    assert effect.difference == pytest.approx(difference)
    test = stats.ttest_ind(np.array(BASE) + saved, NEW, equal_var=False, alternative="greater")
    assert effect.p_less == pytest.approx(test.pvalue)
    assert test.pvalue < 0.05
    reached = difference / math.sqrt(1 / 3 + 1 / 4)
    assert reached < 0.004
    assert claim.verdict == "open"
    assert f"the benchmark's rule gives {reached:.5f}, allowed: at least 0.004" in claim.reason


@pytest.mark.parametrize(
    ("new", "rule", "expected"),
    [
        ([value - 0.004 for value in NEW], True, "agrees"),
        ([value - 0.004 for value in NEW], False, "agrees"),
        ([value + 0.02 for value in NEW], True, "disagrees"),
        ([3.2774], False, "open"),
    ],
)
def test_verdicts_on_comparisons(declared, tmp_path, new, rule, expected):
    _, claim = audited(declared, tmp_path, content=table_of(BASE, new), rule=rule)
    assert claim.verdict == expected
    assert "p = 0.000" not in claim.reason


def test_comparisons_are_not_counted_among_claims(declared, tmp_path):
    suite, table = declared()
    import_runs(suite, "demo/track", table, tmp_path / "results")
    found = totals(audit(suite, "paper", tmp_path / "results"))
    assert {name: counts for name, counts in found.items() if counts} == {
        "logs": {"agrees": 2}, "comparisons": {"open": 1},
    }  # fmt: skip


def test_without_the_table_the_reason_says_how_to_import_it(declared, tmp_path):
    suite, table = declared()
    (tmp_path / "results").mkdir()
    found = audit(suite, "paper", tmp_path / "results")
    assert {row.because for row in found.lines} == {"not run"}
    assert all("resync import --format runs --run demo/track reads the table" in row.reason for row in found.rows)
    assert not audit(suite, "smoke", tmp_path / "results").lines
    import_runs(suite, "demo/track", table, tmp_path / "results")
    file = tmp_path / "results/logs/demo/track.json"
    good = json.loads(file.read_text())
    for content in ([], {"sha256": good["sha256"]}, good | {"groups": {"base": [1], "new": {"a": "x"}}},
                    good | {"groups": {name: {"a": -1.0} for name in good["groups"]}}):  # fmt: skip
        file.write_text(json.dumps(content))
        assert all("--replace reads it again" in row.reason for row in audit(suite, "paper", tmp_path / "results").rows)
    file.write_text(json.dumps(good))
    suite, _ = declared(content=table_of(BASE, [3.27]))
    assert all("--replace reads it again" in row.reason for row in audit(suite, "paper", tmp_path / "results").rows)


def test_what_cannot_be_imported_is_one_line(declared, tmp_path):
    suite, table = declared()

    def refused(message: str, name: str = "demo/track", replace: bool = True) -> None:
        with pytest.raises(LogError, match=message):
            import_runs(suite, name, table, tmp_path / "results", replace)

    import_runs(suite, "demo/track", table, tmp_path / "results")
    refused(r"track\.json: exists", replace=False)
    refused(r"^--run: found 'demo/trak', allowed: demo/track", "demo/trak")
    table.write_text(table.read_text() + "\n")
    refused(r"table\.csv: SHA-256: found [0-9a-f]{64}, allowed: [0-9a-f]{64}, that of demo")
    suite, table = declared(new={"step": 170})
    refused(r"no row with result 'new' at step 170, which new declares$")
    suite, table = declared(content=table_of(BASE, NEW).replace("log2,0,200", "log1,0,200"))
    refused(r"table\.csv:9: found step 200 of run log1/0 again")
    suite, table = declared(content=table_of(BASE, NEW).replace("loss", "l"))
    refused(r"table\.csv:1: no column 'loss'")
    suite, table = declared(content=table_of(BASE, [-1.0]))
    refused(r"table\.csv:\d+: column 'loss' as val_loss: found -1 nats, allowed: a number >= 0")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"base": {"table": "other"}}, "groups[0].table: found 'other', allowed: track"),
        ({"new": {"id": "base"}}, "groups[1].id: found 'base' again, allowed: a name of its own"),
        ({"new": {"step": None}}, "comparisons[0].rule: found for new without a step, allowed: with steps"),
    ],
)
def test_declarations_that_do_not_fit_are_one_line(declared, changes, expected):
    with pytest.raises(ConfigError) as caught:
        declared(**changes)
    assert any(line.endswith(expected) for line in caught.value.lines), caught.value.lines

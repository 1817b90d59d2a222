"""Archives: what is packed comes back, and what is drawn from it is what is drawn from the runs themselves."""

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic
from PIL import Image

from resync import read_results
from resync.base.text_tables import markdown_cells
from resync.papers.archive.build import ArchiveFolders, build, drawn_place
from resync.papers.archive.pack import pack
from resync.papers.archive.page_blocks import fill, outdated, papers, status
from resync.papers.archive.page_quotes import wrong_quotes
from resync.papers.archive.redraw import redraw
from resync.papers.archive.reference import other_versions, place_of
from resync.papers.archive.rounding import difference
from resync.papers.archive.unpack import CHECKSUMS, RUNS, hours_of, opened, scales_of, unpack
from resync.papers.audit import audit
from resync.papers.audit.score import score
from resync.papers.paper import Suite
from resync.runs.results.errors import ResultsError
from resync.runs.results.runs import state_of
from resync.runs.results.status import progress
from resync.runs.results.summary import NAME, digest_of, first_started, publish, read_summary
from resync.runs.run import Run
from resync.tools.cli import main

CONFIGS = str(Path(__file__).parent / "configs")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def runs_with_models(suite: Suite, finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of which one run has a model and a sample, and one has diverged."""
    results = shutil.copytree(finished, tmp_path_factory.mktemp("runs") / "results")
    first, second, *_ = suite.runs("toy", "smoke", "vit", "qsr")
    directory = results / first.directory
    (directory / "model.pt").write_bytes(b"a model")
    (directory / "sample.txt").write_text("To be, or\nnot to be\n")
    entries = json.loads((directory / "summary.json").read_text())
    del entries["sha256"]
    tables = {name: (directory / name).read_text() for name in ("metrics.csv", "steps.csv")}
    publish(directory, tables, entries, others=[directory / "model.pt", directory / "sample.txt"])
    shutil.rmtree(results / second.directory)
    synthetic.write_run(second, results, diverged_at=220)
    return results


@pytest.fixture(scope="module")
def place(suite: Suite, runs_with_models: Path, tmp_path_factory: pytest.TempPathFactory) -> ArchiveFolders:
    """A repository's own archive, for reading only."""
    folder = tmp_path_factory.mktemp("repository")
    place = place_of(folder / "results", folder / "figures")
    packed, drawn = build(suite, "smoke", [runs_with_models], place)
    assert (packed.count, packed.left_out, drawn.absent) == (12, [], {})
    return place


@pytest.fixture
def repository(place: ArchiveFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArchiveFolders:
    """The same archive in the current folder, to be changed."""
    shutil.copytree(place.archive.parents[1], tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return place_of(Path("results"), Path("figures"))


def call(*arguments: str) -> int:
    return main([arguments[0], "--configs", CONFIGS, *arguments[1:]])


# Packing


def test_runs_come_back_to_the_byte_without_models_and_hosts(
    suite: Suite, runs_with_models: Path, place: ArchiveFolders, tmp_path: Path
):
    unpack(place.archive, "smoke", tmp_path)
    summaries = [
        json.loads((tmp_path / run.directory / "summary.json").read_text()) for run in suite.runs("toy", "smoke")
    ]
    wall = [summary["seconds"]["wall"] for summary in summaries if summary["run"].startswith("toy/vit/qsr/")]
    assert hours_of(place.archive, "smoke", "toy")["toy/vit/qsr"] == max(wall) / 3600 > 0
    assert hours_of(place.archive, "smoke", "none") == {}
    for run in suite.runs("toy", "smoke"):
        before, after = runs_with_models / run.directory, tmp_path / run.directory
        for name in ("run.yaml", "metrics.csv", "steps.csv"):
            assert (after / name).read_bytes() == (before / name).read_bytes()
        assert state_of(run, tmp_path).status == state_of(run, runs_with_models).status
        summaries = [json.loads((folder / "summary.json").read_text()) for folder in (before, after)]
        assert summaries[0]["launch"].pop("host") == "host"
        assert summaries[1].pop("archived")["summary_sha256"] == summaries[0].pop("sha256")["summary.json"]
        del summaries[1]["sha256"]
        assert summaries[0] == summaries[1]
    first, diverged, *_ = suite.runs("toy", "smoke", "vit", "qsr")
    folder = tmp_path / first.directory
    assert (folder / "sample.txt").read_text() == "To be, or\nnot to be\n"
    assert not (folder / "model.pt").exists()
    assert progress(first, tmp_path).reason == "from an archive, without model.pt"
    assert state_of(diverged, tmp_path).status == "diverged"
    # Without the file of its hash, Snakemake trains a run when it is asked for it.
    assert [(tmp_path / run.hash_file).exists() for run in (first, diverged)] == [False, True]
    pack(suite, "smoke", [tmp_path], tmp_path / "again")
    for name in (RUNS, CHECKSUMS):
        assert (tmp_path / "again/smoke/toy" / name).read_bytes() == (place.archive / "smoke/toy" / name).read_bytes()


def test_a_run_that_is_trained_again_keeps_the_time_of_its_first_training(
    suite: Suite, results: Path, place: ArchiveFolders, runs: list[Run], tmp_path: Path
):
    """Otherwise a claim that is younger than its first run would seem to be older."""
    unpack(place.archive, "smoke", tmp_path / "old")
    again, other = (read_summary(results / run.directory / NAME) for run in runs[:2])
    assert first_started(again) == first_started(other) == datetime(2026, 1, 1, tzinfo=UTC)
    synthetic.rewrite(results / runs[0].directory, started="2026-03-01T00:00:00Z")
    for number in range(2):  # packed once more, from the archive of the first time
        pack(suite, "smoke", [results, tmp_path / ("old", "new0")[number]], tmp_path / f"archive{number}")
        unpack(tmp_path / f"archive{number}", "smoke", tmp_path / f"new{number}")
        found = [read_summary(tmp_path / f"new{number}" / run.directory / NAME) for run in runs[:2]]
        assert [first_started(summary) for summary in found] == [first_started(other)] * 2
        assert [summary["started"][:7] for summary in found] == ["2026-03", "2026-01"]


def test_runs_without_results_are_left_out_and_named(suite: Suite, results: Path, runs: list[Run], tmp_path: Path):
    shutil.rmtree(results / runs[0].directory)
    (results / runs[1].directory / "metrics.csv").write_text("")
    (results / runs[2].directory / "run.yaml").write_text(runs[1].to_yaml())
    packed = pack(suite, "smoke", [results], tmp_path)
    assert packed.count == 9
    assert [line.split(": ")[:2] for line in packed.left_out] == [
        ["toy/vit/qsr/seed1 (smoke)", "damaged"],
        ["toy/vit/qsr/seed2 (smoke)", "stale"],
    ]


def test_what_does_not_come_back_is_not_packed(suite: Suite, results: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("resync.papers.archive.pack.unpack", lambda archive, scale, folder: None)
    with pytest.raises(ResultsError):
        pack(suite, "smoke", [results], tmp_path)


# Drawing


def test_a_committed_archive_is_checked(repository: ArchiveFolders, capsys: pytest.CaptureFixture[str]):
    table = repository.figures / "smoke/toy/table1.md"
    table.write_text(table.read_text().replace("QSR", "QRS", 1))
    (repository.figures / "smoke/toy/fig5.png").unlink()
    (repository.figures / "smoke/toy/old.csv").write_text("")
    Path("README.md").write_text("12<!--=smoke/environment/runs--> or 13<!--=smoke/environment/runs--> runs")
    assert call("reference", "--into", "drawn", "check") == 1
    *_, first, second, third, count, quote, drawn = capsys.readouterr().out.splitlines()
    assert first == f"{repository.figures}/smoke/toy/fig5.png: drawn, and not committed"
    assert second == f"{repository.figures}/smoke/toy/old.csv: committed, and not drawn any more"
    assert third.startswith(f"{table}: line ")
    assert count == "smoke: 3 files differ"
    assert quote == "README.md:1: smoke/environment/runs: found 13, allowed: 12 as rounded"
    assert drawn == f"drawn: {Path('drawn/results/smoke/site/index.html').resolve()}"
    assert Path(drawn.removeprefix("drawn: ")).exists()


def test_verbs_read_the_archive_where_there_are_no_results(
    repository: ArchiveFolders, suite: Suite, runs_with_models: Path, capsys: pytest.CaptureFixture[str]
):
    """They say so, write nothing into it, and read results as soon as there are some."""
    before = sorted(repository.archive.parents[1].rglob("*"))
    with opened(repository.archive, "without_runs") as results:
        assert [file.relative_to(results) for file in results.rglob("*")] == [Path("smoke"), Path("smoke/audit.json")]
    said = "resync: results: no run of smoke scale: these are the results of results/reference\n"
    assert call("audit", "--scale", "smoke", "qsr_beats_h4") == 0
    out, err = capsys.readouterr()
    assert (out.startswith("toy/qsr_beats_h4: agrees "), err) == (False, said)  # one of its runs has diverged
    assert call("status") == 0
    assert "11 finished, 1 diverged" in capsys.readouterr().out
    assert call("power", "--scale", "smoke") == 0
    assert capsys.readouterr().err == said
    assert call("render", "toy/fig5", "--scale", "smoke", "--figures", "../drawn") == 0
    out, err = capsys.readouterr()
    assert (set(map(Path, out.split())), err) == (set(Path("../drawn/smoke/toy").iterdir()), said)
    assert Path("../drawn/smoke/toy/fig5.csv").read_text() == (repository.figures / "smoke/toy/fig5.csv").read_text()
    assert call("diff", "results", str(runs_with_models)) == 0
    assert sorted(repository.archive.parents[1].rglob("*")) == before
    assert call("report", "--scale", "smoke") == 0
    page = Path("results/smoke/site/index.html")
    assert capsys.readouterr().out.endswith(f"{page}\n")
    assert list(page.parent.rglob("fig5.png"))
    [run, *_] = suite.runs("toy", "smoke", "vit", "h4")
    shutil.copytree(runs_with_models / run.directory, Path("results") / run.directory)
    assert call("audit", "--scale", "smoke", "qsr_beats_h4") == 0
    assert capsys.readouterr().out.startswith("toy/qsr_beats_h4: untested (not run): ")


def test_other_packages_are_named_beside_differences(repository: ArchiveFolders):
    assert other_versions("smoke", repository) == ""
    file = repository.archive / "smoke/environment.json"
    content = json.loads(file.read_text())
    content["drawn_with"]["matplotlib"] = "1.0"
    file.write_text(json.dumps(content))
    assert other_versions("smoke", repository).startswith("matplotlib 1.0, here ")


def test_an_archive_grows_by_new_runs_and_draws_what_has_runs(
    suite: Suite,
    runs_with_models: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    page = Path("README.md")
    blocks = [f"<!--results: {name}-->\n<!--/results-->\n" for name in ("status", "items")]
    page.write_text(f"Before.\n{''.join(blocks)}Behind.\n")
    for name, count in (("h4", 3), ("parallel", 6)):
        for run in suite.runs("toy", "smoke", "vit", name):
            shutil.copytree(runs_with_models / run.directory, Path("results") / run.directory)
        assert call("reference", "--scale", "smoke", "renew") == 0
        shutil.rmtree("results/smoke")
        assert f"smoke: {count} runs, " in capsys.readouterr().out
        drawn = {file.stem for file in Path("figures/reference/smoke/toy").iterdir()}
        assert ("fig6" in drawn) is (count == 6)
    text = page.read_text()
    assert text.startswith("Before.\n")
    assert text.endswith("<!--/results-->\nBehind.\n")
    assert {"fig5", "fig6", "table1"} <= drawn
    assert f"| smoke, 6 runs | {len(drawn)} of 5 | " in text
    assert all(f"(figures/reference/smoke/toy/{name})" in text for name in ("fig5.svg", "table1.md"))
    environment = json.loads(Path("results/reference/smoke/environment.json").read_text())
    assert (environment["runs"], environment["devices"], environment["hours"]) == (6, ["cpu"], 0.1)
    assert "host" not in json.dumps(environment)
    read = read_results("reference/smoke", "toy")
    assert len(read.runs) == len(read.values.groupby(["experiment", "series", "seed"])) == 6
    assert set(read.claims.id) == {claim.id for claim in suite.papers["toy"].claims}


def test_nothing_is_drawn_of_a_paper_without_runs_not_even_what_needs_none(suite: Suite, tmp_path: Path):
    """A scale may have the runs of one paper; the figures of others from the configuration would take megabytes."""
    assert redraw(suite, "smoke", tmp_path / "archive", tmp_path).items == {}
    assert (tmp_path / "results/smoke/audit.json").exists()


def test_the_status_counts_what_agrees_and_what_does_not_at_each_scale(suite: Suite, tmp_path: Path):
    place = ArchiveFolders(tmp_path / "archive", tmp_path / "figures")
    for scale in ("mini", "smoke"):
        folder = place.archive / scale / "toy"
        folder.mkdir(parents=True)
        (folder / RUNS).touch()
        words = "agrees", "disagrees", "open", "untested", "agrees"
        claims = [claim(str(number), verdict=word, exploratory=("pilots" if number > 3 else ""))
                  for number, word in enumerate(words)]  # fmt: skip
        (folder.parent / "audit.json").write_text(json.dumps({"claims": claims, "score": score(claims, scale)}))
        (folder.parent / "environment.json").write_text('{"runs": 1}')
    said = "of 5 claims 3 are tested: 1 agrees, 1 disagrees, 1 is open; 1 is exploratory: 1 agrees; 1 is untested"
    lines = list(status(suite, place))
    for scale in ("mini", "smoke"):
        assert [markdown_cells(line)[2] for line in lines if f"| {scale}, 1 runs |" in line] == [said]
        (place.archive / scale / "audit.json").write_text(json.dumps({"score": {"papers": {}}}))
    _, _, *rows = papers(suite, place, tmp_path)
    assert rows == []  # a paper that the archive does not have


def test_nothing_is_replaced_without_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert call("reference", "--scale", "smoke", "renew") == 2
    assert "results/smoke: found no run that has ended, allowed: at least one" in capsys.readouterr().err
    assert call("reference", "check") == 2
    assert "results/reference: found no results, allowed: " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# Comparing files


@pytest.mark.parametrize(
    ("name", "first", "second", "expected"),
    [
        ("a.json", '{"mean": 0.30000000000000004}', '{"mean": 0.3}', ""),
        ("a.json", '{"mean": 0.3001}', '{"mean": 0.3}', "mean: committed '0.3001', drawn '0.3'"),
        ("a.json", '{"a": [{"ours": 1.0}]}', '{"a": [{"mean": 1.0}]}', "committed a[0].ours: '1.0', drawn a[0].mean: "),
        ("a.json", '{"a": [{"of": {"mean": 2.2e-16}, "at": 1}]}', '{"a": [{"of": {"mean": 0}, "at": 1}]}', ""),
        (
            "a.json",
            '{"a": [{"of": {"mean": 2.2e-13}, "at": 1}]}',
            '{"a": [{"of": {"mean": 0}, "at": 1}]}',
            "a[0].of.mean",
        ),
        ("a.csv", "x,y\na,1.0\nb,2.2e-16\n", "x,y\na,1.0\nb,-2.2e-16\n", ""),
        ("a.csv", "x,y\na,1.0\nb,2.2e-13\n", "x,y\na,1.0\nb,-2.2e-13\n", "line 3, column 2: committed '2.2e-13'"),
        ("a.csv", "x,y\n1.0,2.2e-16\n", "x,y\n1.0,0.0\n", "line 2, column 2: committed '2.2e-16', drawn '0.0'"),
        ("a.md", "one\ntwo\n", "one\n", "committed line 2: 'two', drawn its end"),
        ("a.md", "holds at -1e-3", "holds at -0.001", ""),
        ("a.md", "holds", "fails", "line 1: committed 'holds', drawn 'fails'"),
        ("a.svg", '<g id="p1f"/><use href="#p1f"/>', '<g id="p2a"/><use href="#p2a"/>', ""),
        ("a.svg", '<g id="p1f"/><use href="#p1f"/>', '<g id="p2a"/><use href="#p1f"/>', "line 1: committed "),
        ("a.svg", '<path d="M 0.000001 5"/>', '<path d="M 0.000000 5"/>', ""),
        ("a.svg", '<path d="M 0.000003 5"/>', '<path d="M 0.000000 5"/>', "line 1: committed "),
        ("a.md", "error 0.000001", "error 0.000000", "line 1: committed "),
    ],
)
def test_rounding_is_no_difference(name: str, first: str, second: str, expected: str, tmp_path: Path):
    for folder, text in (("committed", first), ("drawn", second)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text)
    found = difference(tmp_path / "committed" / name, tmp_path / "drawn" / name)
    assert found.startswith(expected) if expected else found == ""


def test_pictures_may_differ_in_a_pixel(tmp_path: Path):
    def found(changed: int, height: int = 200) -> str:
        pixels = np.zeros((200, 200, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "committed.png")
        pixels.reshape(-1, 3)[:changed] = 255
        Image.fromarray(pixels[:height]).save(tmp_path / "drawn.png")
        return difference(tmp_path / "committed.png", tmp_path / "drawn.png")

    assert (found(1), found(100)[:6], found(0, height=50)[:9]) == ("", "0.25 %", "200 x 200")


# Quotes

AUDITS = {
    "mini": {
        "rows": [{"paper": "qsr", "id": "bytes", "ours": {"mean": 44_712_345.0}, "verdict": "disagrees"}],
        "claims": [
            {"paper": "qsr", "id": "beats", "effects": [{"difference": -0.3149, "p_less": 4e-5}], "verdict": "agrees"}
        ],
        "totals": {"claims": {"agrees": 30}},
        "environment": {"runs": 1512, "hours": 7.25},
    }
}


@pytest.mark.parametrize(
    ("text", "agrees"),
    [
        ("-0.31<!--=mini/qsr/beats/effects/0/difference--> points", True),
        ("\N{MINUS SIGN}0.315<!--= mini/qsr/beats/effects/0/difference -->", True),
        ("an effect of -0.32<!--=mini/qsr/beats/effects/0/difference-->", False),
        ("p <0.001<!--=mini/qsr/beats/effects/0/p_less-->", True),
        ("p <0.00001<!--=mini/qsr/beats/effects/0/p_less-->", False),
        ("**Disagrees**<!--=mini/qsr/bytes/verdict-->", True),
        ("it fails<!--=mini/qsr/beats/verdict-->", False),
        ("44.7<!--=mini/qsr/bytes/ours/mean * 1e-6--> MB", True),
        ("1,512<!--=mini/environment/runs--> runs, 7.3 h<!--=mini/environment/hours-->", False),
        ("| 30<!--=mini/totals/claims/agrees--> | 7.25<!--=mini/environment/hours--> |", True),
        ("3<!--=paper/environment/runs-->", False),
        ("3<!--=mini/qsr/loses/verdict-->", False),
        ("3<!--=mini/qsr/beats/effects/1/p-->", False),
        ("3<!--=mini/qsr/beats/effects-->", False),
        ("```\n3<!--=mini/nothing-->\n```\nand `3<!--=mini/nothing-->`", True),
    ],
)
def test_quotes_agree_with_the_audit(text: str, agrees: bool, tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\n{text}\n")
    found = list(wrong_quotes([page], AUDITS))
    assert agrees is not bool(found)
    quote = text.partition("=")[2].partition("-->")[0].split()[0]
    assert all(line.startswith(f"{page}:3: {quote if text.count('<!--') == 1 else ''}") for line in found)


# Tables of claims


def claim(name: str, **changes: Any) -> dict[str, Any]:
    sides = [
        {"label": label, "ours": {"mean": mean, "std": std, "text": text}}
        for label, mean, std, text in [("SGP", 40.0, 0.5, ""), ("D-PSGD|", 39.5, 0.25, "")]
    ]
    effect = {"difference": 0.5, "low": 0.125, "high": 0.875, "n": [10, 8]}
    content = {"statement": "SGP *beats* D-PSGD.", "unit": "%", "sides": sides, "effects": [effect]}
    content |= {"status": "verified", "at_least": 0.0, "power": None, "survives": None}
    content |= {
        "kind": "claim",
        "verdict": "agrees",
        "because": "runs decide",
        "exploratory": "",
        "scales": ["mini", "smoke"],
    }
    return {"paper": "sgp", "id": name} | content | changes


NOT_RUN = {"label": "OSGP", "ours": {"mean": None, "std": None, "text": "none"}}


@pytest.fixture
def audited(tmp_path: Path) -> ArchiveFolders:
    """A place with an audit of two claims."""
    claims = [
        claim("beats", power=0.823, survives=False, exploratory="a pilot"),
        claim("open", sides=[NOT_RUN], effects=[], verdict="untested", because="not run"),
    ]
    file = tmp_path / "archive/mini/audit.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"claims": claims}))
    return ArchiveFolders(tmp_path / "archive", tmp_path / "figures")


def test_a_table_of_claims_is_written_from_the_audit(papers: Suite, audited: ArchiveFolders, tmp_path: Path):
    page, suite = tmp_path / "page.md", papers
    before, after = "# A page\n\n<!--results: claims mini/sgp open\n  beats-->\n", "<!--/results-->\n\nAfter.\n"
    page.write_text(f"{before}old\n{after}")
    assert len(list(outdated([page], suite, audited))) == 1
    text = fill(page, suite, audited)
    page.write_text(text)
    assert list(outdated([page], suite, audited)) == []
    assert text.startswith(before)
    assert text.endswith(after)
    _, _, first, second = (markdown_cells(line) for line in text.splitlines() if line.startswith("|"))
    assert first[1:] == ["verified", "OSGP: none", "+0", "", "", "", "**untested**, not run"]
    sides, effect = "SGP: 40.00 ± 0.50<br>D-PSGD\\|: 39.50 ± 0.25", "+0.50 points (+0.12 to +0.88)"
    verdict = "**agrees**, exploratory, not after the correction for many tests"
    assert second == ["SGP \\*beats\\* D-PSGD.", "verified", sides, "+0", effect, "10, 8", "82 %", verdict]


def test_what_cannot_be_shown_is_named(papers: Suite, audited: ArchiveFolders, tmp_path: Path):
    page = tmp_path / "page.md"
    for head, named in (
        ("claims mini/sgp beat", "'beats'?"),
        ("claims paper/sgp beats", "paper/audit.json: missing"),
        ("claims mini/spg beats", "'sgp'?"),
        ("claims", "for claims"),
        ("status mini", "for claims"),
        ("statu", "'status'?"),
    ):
        page.write_text(f"<!--results: {head}-->\n<!--/results-->\n")
        [line] = outdated([page], papers, audited)
        assert line.startswith(f"{page}: ")
        assert named in line


# A crate


@pytest.fixture(scope="module")
def crate(runs_with_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published archive."""
    out = tmp_path_factory.mktemp("published") / "crate"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        flags = ["--licence", "CC-BY-4.0", "--author", "Ada Lovelace (0000-0002-1825-0097)", "--author", "Alan Turing"]
        assert call("archive", *flags, "--out", str(out), str(runs_with_models)) == 0
    return out


def test_a_crate_describes_every_file_and_how_it_was_made(crate: Path):
    content = json.loads((crate / "ro-crate-metadata.json").read_text())
    entities = {entity["@id"]: entity for entity in content["@graph"]}
    assert len(entities) == len(content["@graph"])
    assert entities["ro-crate-metadata.json"]["about"] == {"@id": "./"}
    root = entities["./"]
    assert {each["@id"] for each in root["conformsTo"]} > {"https://w3id.org/ro/wfrun/workflow/0.5"}
    assert entities[root["license"]["@id"]]["name"] == "CC-BY-4.0"
    assert [entities[each["@id"]]["name"] for each in root["author"]] == ["Ada Lovelace", "Alan Turing"]
    assert root["author"][0] == {"@id": "https://orcid.org/0000-0002-1825-0097"}
    assert {"@id": "https://arxiv.org/abs/2310.14423"} in root["citation"]
    assert "ComputationalWorkflow" in entities[root["mainEntity"]["@id"]]["@type"]
    [action] = [entities[each["@id"]] for each in root["mentions"]]
    assert action["instrument"] == root["mainEntity"]
    assert (action["startTime"], action["endTime"]) == ("2026-01-01T00:00:00Z", "2026-01-01T00:00:06Z")
    assert {"@id": "results/smoke/toy/runs.tar.xz"} in action["result"]
    assert all(each in entities or each.startswith("http") for each in references(content["@graph"]))
    for file in (file for file in crate.rglob("*") if file.is_file()):
        name = file.relative_to(crate).as_posix()
        if not name.startswith(("paper_configs/", "workflow/rules/", "ro-crate-metadata.json")):
            assert int(entities[name]["contentSize"]) == file.stat().st_size
            assert entities[name]["sha256"] == digest_of(file)
            assert {"@id": name} in root["hasPart"]
    assert {"LICENSE", "CITATION.cff"} < entities.keys()
    assert entities["figures/smoke/toy/fig5.png"]["encodingFormat"] == "image/png"


def references(content: object) -> set[str]:
    """The ids to which entities refer."""
    if isinstance(content, list):
        return {each for part in content for each in references(part)}
    if not isinstance(content, dict):
        return set()
    if content.keys() == {"@id"}:
        return {str(content["@id"])}
    return references(list(content.values()))


def test_what_is_drawn_from_an_archive_is_what_is_drawn_from_the_runs(
    suite: Suite, runs_with_models: Path, crate: Path, place: ArchiveFolders, tmp_path: Path
):
    assert scales_of(crate / "results") == ["smoke"]
    into = tmp_path / "drawn"
    assert call("redraw", "--into", str(into), str(crate)) == 0
    unpacked = audit(suite, "smoke", into / "results")
    assert [(row.id, row.verdict, row.reason) for row in unpacked.lines] == [
        (row.id, row.verdict, row.reason) for row in audit(suite, "smoke", runs_with_models).lines
    ]
    assert all(row.provenance.get("hosts", []) == [] for row in unpacked.lines)
    assert (into / "results/smoke/site/toy/index.html").exists()
    files = drawn_place(into).kept("smoke")
    expected = "audit.json", "toy/fig5.png", "toy/table1.csv", "toy/table1.tex"
    assert set(map(Path, expected)) < files
    for file in files:
        assert drawn_place(into).path("smoke", file).read_bytes() == place.path("smoke", file).read_bytes()


def test_a_crate_needs_a_licence_a_new_folder_and_results(
    repository: ArchiveFolders, runs_with_models: Path, capsys: pytest.CaptureFixture[str]
):
    shutil.copytree(runs_with_models / "smoke", "results/smoke")
    for flags in (["--licence", "as you like"], ["--out", "."], ["--scale", "paper"]):
        assert call("archive", "--out", "new", *flags, "results") == 2
        assert f"{' '.join(flags)}: " in capsys.readouterr().err
        assert not Path("new").exists()


# Differences


def compared(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict]:
    """The exit code of `resync diff --json`, and what it prints."""
    capsys.readouterr()
    code = call("diff", "--json", *map(str, arguments))
    return code, json.loads(capsys.readouterr().out, parse_constant=pytest.fail)


def test_an_archive_is_equal_to_its_runs(
    runs_with_models: Path, crate: Path, place: ArchiveFolders, capsys: pytest.CaptureFixture[str]
):
    for side in (runs_with_models, crate):
        code, found = compared(capsys, side, place.archive)
        assert (code, found["equal"], found["compared"]) == (0, True, 12)
        assert found["values"] == found["settings"] == found["verdicts"] == []


def test_what_is_zero_up_to_rounding_is_equal(
    suite: Suite, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    copy, (run, without, *_) = shutil.copytree(results, tmp_path / "copy"), suite.runs("toy", "smoke", "vit", "h4")
    for side, left in ((copy, 2.2e-16), (results, -4.4e-16)):  # of other runs it is 4,810
        synthetic.rewrite(side / run.directory, parameters=left)
        synthetic.rewrite(side / without.directory, parameters=None)  # equal, and no reason to take others as equal
    assert compared(capsys, copy, results)[1]["values"] == []
    synthetic.rewrite(results / run.directory, parameters=1e-9)
    assert [each["differing"] for each in compared(capsys, copy, results)[1]["values"]] == [1]


def test_differences_of_runs_settings_values_and_verdicts(
    suite: Suite,
    finished: Path,
    results: Path,
    runs: list[Run],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    h4 = suite.runs("toy", "smoke", "vit", "h4")
    shutil.rmtree(results / suite.runs("toy", "smoke", "vit", "sgp")[0].directory)
    for run in runs:
        shutil.rmtree(results / run.directory)
        synthetic.write_run(run, results, top1=90.0 + run.seed)
    seconds = json.loads((results / runs[0].directory / "summary.json").read_text())["seconds"]
    synthetic.rewrite(results / runs[0].directory, seconds=seconds | {"training": 2 * seconds["training"]})
    file = results / h4[0].directory / "run.yaml"
    file.write_text(file.read_text().replace("momentum: 0.9", "momentum: 0.8").replace("processes: 1", "processes: 2"))
    (results / h4[1].directory / "metrics.csv").write_text("")
    code, found = compared(capsys, finished, results)
    assert code == 1
    assert found["only"] == [["smoke/toy/vit/h4/seed1", "smoke/toy/vit/sgp/seed0"], []]
    assert [line.split(":")[0] for line in found["unreadable"][1]] == ["smoke/toy/vit/h4/seed1"]
    assert [(each["key"], each["values"]) for each in found["settings"]] == [("optimizer.momentum", [0.9, 0.8])]
    assert [each["key"] for each in found["execution"]] == ["processes"]
    [top1] = [each for each in found["values"] if each["metric"] == "val_top1"]
    assert (top1["series"], top1["seeds"], top1["differing"]) == ("smoke/toy/vit/qsr", 3, 3)
    assert (top1["means"][1], top1["spread"]) == (91.0, 1.0)
    assert not any("seconds" in each["metric"] for each in found["values"])
    of_times = compared(capsys, "--times", finished, results)[1]["values"]
    assert any("seconds" in each["metric"] for each in of_times)
    assert {"scale": "smoke", "name": "toy/qsr_beats_h4", "verdicts": ["agrees", "untested"]} in found["verdicts"]
    # Six points apart with a standard deviation of one.
    for spreads, expected in ((5, True), (8, False)):
        values = compared(capsys, "--spreads", spreads, finished, results)[1]["values"]
        assert any(each["metric"] == "val_top1" for each in values) is expected
    assert call("diff", str(finished), str(results)) == 1
    text = capsys.readouterr().out
    assert all(name in text for name in ("smoke/toy/vit/sgp/seed0", "smoke/toy/vit/h4/seed0: optimizer.momentum"))
    for empty, named in ((tmp_path / "nowhere", "no such folder"), (tmp_path / "empty", "found no results")):
        (tmp_path / "empty").mkdir(exist_ok=True)
        assert call("diff", str(empty), str(empty)) == 2
        assert named in capsys.readouterr().err

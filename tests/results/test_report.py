"""The site without a browser: what its pages hold, whither their links lead, and what it says of missing results."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import synthetic
from sites import written

from resync.papers.audit import audit, write
from resync.papers.paper import Suite
from resync.papers.report import broken_links, report, write_index
from resync.papers.report.coverage import coverage

RUN = "toy/vit/qsr/seed0"


class Page(HTMLParser):
    """The links, ids, texts and tags of a page, whose tags must be closed in order."""

    VOID = ("meta", "link", "img", "input", "br", "path", "circle", "rect")

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.open: list[str] = []
        self.feed(file.read_text())
        assert self.open == [], file

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.links += [given[name] or "" for name in ("href", "src") if name in given]
        self.ids += [given["id"] or ""] if "id" in given else []
        self.open += [] if tag in self.VOID else [tag]

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag in self.VOID

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def numbers_of(site: Path, name: str) -> dict:
    """The numbers in the script of a chart, which loads them under its name."""
    script = (site / name / "data.js").read_text()
    loaded, numbers = re.fullmatch(r"resync\.loaded\((\"[^\"]+\"),(.*)\);\n", script).groups()
    assert json.loads(loaded) == name
    return json.loads(numbers)


@pytest.fixture(scope="session")
def pages(site: Path) -> dict[Path, Page]:
    return {file: Page(file) for file in site.rglob("*.html")}


def test_links_of_all_pages_lead_to_files_and_places_within_the_site(suite: Suite, site: Path, pages: dict[Path, Page]):
    names = {file.relative_to(site).as_posix() for file in pages}
    runs = {f"{run.id}/index.html" for run in suite.runs("toy", "smoke")}
    assert names == {"index.html", "audit.html", "runs.html", "compare.html", "toy/index.html", *runs}
    assert sum(len(page.links) for page in pages.values()) > 400
    assert list(broken_links(site)) == []
    for file, page in pages.items():
        assert len(set(page.ids)) == len(page.ids)
        targets = {(file.parent / link.partition("#")[0]).resolve() for link in page.links if ":" not in link}
        everywhere = (site.parents[1] / "index.html").resolve()
        assert everywhere in targets
        assert all(target.is_relative_to(site.resolve()) for target in targets - {everywhere, file.parent.resolve()})


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "index.html").write_text('<a href="a/b.html#there"><a href="a/b.html#gone"><img src="c.svg">')
    (tmp_path / "a/b.html").write_text('<p id="there"><a href="../index.html#x=1"><a href="https://arxiv.org/">')
    assert [line.partition(": ")[2] for line in broken_links(tmp_path)] == [
        "a/b.html#gone: no such place",
        "c.svg: no such file",
    ]


def test_the_first_page_shows_numbers_and_the_chosen_figures(suite: Suite, results: Path, tmp_path: Path):
    drawn = tmp_path / "smoke/toy"
    drawn.mkdir(parents=True)
    for name in ("fig5", "fig7"):
        (drawn / f"{name}.svg").write_text("<svg/>")
    paper = suite.papers["toy"]
    for chosen in (("fig5", "fig7"), ("fig7", "fig5"), ("fig7",)):
        object.__setattr__(paper, "gallery", chosen)
        try:
            text = (report(suite, "smoke", results, tmp_path).parent / "index.html").read_text()
        finally:
            object.__setattr__(paper, "gallery", ())
        assert tuple(re.findall(r'src="figures/toy/(\w+)\.svg"', text)) == chosen
    assert re.search(r"<li><b>\d+ of \d+</b> runs have finished</li>", text)


def test_a_page_has_what_came_out_of_a_paper_that_was_run_alone(suite: Suite, results: Path):
    write(audit(suite, "smoke", results), results / "smoke/toy")
    site = report(suite, "smoke", results, results / "figures").parent
    assert 'id="toy-claim-qsr_beats_h4"' in (site / "audit.html").read_text()


def test_the_page_of_all_scales_says_how_to_see_what_is_archived(suite: Suite, results: Path):
    archived = results / "reference"
    write(audit(suite, "smoke", results), archived / "mini")
    content = json.loads((archived / "mini/audit.json").read_text())
    for claim in content["claims"]:
        claim["scales"] = ["mini"]
    (archived / "mini/audit.json").write_text(json.dumps(content))
    write_index(suite, results, results / "figures")
    text = (results / "index.html").read_text()
    assert text.count("<code>make report-reference</code> draws that of the archive in minutes") == 1
    drawn = results.parent / ".reference/results/mini/site"
    drawn.mkdir(parents=True)
    (drawn / "index.html").write_text("")
    write_index(suite, results, results / "figures")
    assert '<a href="../.reference/results/mini/site/index.html">' in (results / "index.html").read_text()


def test_figure_row_run_and_claim_link_to_one_another(site: Path, pages: dict[Path, Page]):
    paper, of_audit, run = (pages[site / name] for name in ("toy/index.html", "audit.html", f"{RUN}/index.html"))
    assert {"../audit.html#toy-qsr_top1", "../audit.html#toy-claim-volumes", "vit/qsr/seed0/index.html"} <= {
        *paper.links
    }
    assert {"toy/index.html#table1", f"{RUN}/index.html"} <= {*of_audit.links}
    assert {
        "../../../index.html#fig5",
        "../../../../audit.html#toy-qsr_top1",
        "../../../../audit.html#toy-claim-volumes",
    } <= {*run.links}


def test_a_paper_shows_what_is_drawn_and_says_what_is_not(site: Path):
    text = (site / "toy/index.html").read_text()
    assert "A toy paper on how often workers synchronise" in text
    assert "mlp on digits, 8 workers, 660 steps" in text
    assert "QSR &lt; H = 4 &lt; parallel" in text
    assert "<code>snakemake figures/smoke/toy/fig6.png</code>" in text
    assert "accuracy on &lt;other&gt; data" in text
    assert '<th scope="row">Parallel SGD</th>' in text  # of table 1, which is a table and no picture
    assert 'src="../figures/toy/fig5.' in text
    assert 'src="../figures/toy/table1.' not in text
    headings = {place: title for title, place in re.findall(r'<h2>(.*?) <a class="permalink" href="#(\w+)"', text)}
    assert any(title.startswith("Small ") for title in headings.values())  # what was trained here, not by the paper
    contents = re.findall(r'<li><a href="#(\w+)"[^>]*>\1: (.*?)</a>', text)
    assert dict(contents) == headings
    assert "</span><small" not in text  # which reads as one word with the verdict


def test_an_item_that_a_scale_lacks_is_absent_for_a_reason(suite: Suite, tmp_path: Path):
    folder = report(suite, "mini", tmp_path / "results", tmp_path / "figures").parent
    assert "absent" in (folder / "index.html").read_text()
    assert "mini and gpu: vit exists only at smoke and paper scale" in (folder / "index.html").read_text()


def test_a_label_has_its_symbol_where_it_is_read_and_its_letters_elsewhere(site: Path):
    text = (site / RUN / "index.html").read_text()
    symbol = '<span class="symbol"><i>H</i><span>_</span><sub>base</sub></span>'
    assert f"<h1>QSR, {symbol} = 4, seed 0</h1>" in text
    assert "<title>QSR, H_base = 4, seed 0 " in text
    assert symbol not in "".join(re.findall(r"<code>.*?</code>|<[^>]*>", text, re.DOTALL))


def test_every_item_stands_in_the_coverage_of_all_scales(suite: Suite, site: Path):
    figures = site.parents[2] / "figures"
    states = {row.item.id: [cell.state for cell in row.cells] for row in coverage(suite, figures)}
    assert states == {
        "fig5": ["drawn", "absent", "absent", "not drawn yet"],
        "fig6": ["not drawn yet", "absent", "absent", "not drawn yet"],
        "fig7": ["drawn", "not drawn yet", "not drawn yet", "not drawn yet"],
        "table1": ["drawn", "absent", "absent", "not drawn yet"],
        "table2": ["not drawn yet", "absent", "absent", "not drawn yet"],
    }
    assert '<a href="toy/index.html">3 of 5</a>' in (site / "index.html").read_text()
    assert '<a href="smoke/site/toy/index.html">3 of 5</a>' in (site.parents[1] / "index.html").read_text()


def test_the_audit_has_every_line_with_its_reason(site: Path):
    content = json.loads((site.parent / "audit.json").read_text())
    text = (site / "audit.html").read_text()
    assert text.count('<tr role="row" id=') == len(content["rows"]) + len(content["claims"])
    for row in content["rows"]:
        assert f'id="toy-{row["id"]}"' in text


def test_the_first_page_shows_figures_and_at_smoke_scale_no_score(site: Path):
    text = (site / "index.html").read_text()
    assert "<b>3 of 5</b> figures and tables are drawn" in text
    assert "<b>12 of 12</b> runs have finished" in text
    assert re.findall(r'<a href="(toy/index.html#\w+)"><img', text) == ["toy/index.html#fig5", "toy/index.html#fig7"]
    assert "score" not in text.lower()


def test_the_archive_stands_beside_what_was_trained_here(suite: Suite, results: Path, tmp_path: Path):
    figures = tmp_path / "figures"
    drawn = figures / "reference/smoke/toy/fig6.png"
    drawn.parent.mkdir(parents=True)
    drawn.write_bytes(b"")
    write(audit(suite, "smoke", results), results / "reference/mini")
    write(audit(suite, "paper", results), results / "reference/paper")
    text = (report(suite, "smoke", results, figures).parent / "index.html").read_text()
    assert "in the archive" in text
    assert "QSR sends less" in text or "results of the archive, on real data" in text
    assert {cell.state for row in coverage(suite, figures) for cell in row.cells if row.item.id == "fig6"} >= {
        "in the archive", "not drawn yet",
    }  # fmt: skip
    assert "In the archive of the repository: of " in (results / "index.html").read_text()


def test_what_was_fixed_before_its_runs_stands_before_what_is_exploratory(suite: Suite, results: Path, tmp_path: Path):
    write(audit(suite, "smoke", results), results / "reference/mini")
    file = results / "reference/mini/audit.json"
    content = json.loads(file.read_text())
    first = next(claim for claim in content["claims"] if claim["verdict"] == "agrees")
    first["exploratory"] = "fixed after its runs"
    file.write_text(json.dumps(content))
    text = (report(suite, "smoke", results, tmp_path).parent / "index.html").read_text()
    assert re.findall(r'class="soft">toy(, exploratory)?:', text) == ["", "", ", exploratory"]


def test_a_claim_stands_once_on_the_page_of_its_paper(site: Path):
    text = (site / "toy/index.html").read_text()
    places = re.findall(r'<dd><a href="(\.\./audit.html#toy-claim-\w+)"', text)
    assert len(places) == len(set(places)) > 3


def test_the_points_of_a_figure_become_its_chart(site: Path):
    first, second = numbers_of(site, "figures/toy/fig7")["panels"]
    assert [first["x"], first["y"], second["x"], second["y"]] == ["Epoch", "Period", "Workers", "Time (s)"]
    computed, published, level = first["lines"]
    assert computed["label"] == "QSR, H_base = 4, computed"
    assert computed["points"] == [[0, 30], [4, 90], [4, 80], [4, 95]]
    assert published["color"] == computed["color"]
    assert published["dash"] != computed["dash"]
    assert level["level"] == 50


def test_a_run_says_how_it_differs_where_its_time_went_and_how_to_repeat_it(site: Path):
    text = (site / RUN / "index.html").read_text()
    assert "<code>sync.period.rule</code>" in text
    assert "<code>optimizer.weight_decay</code>" not in text  # the same in all series
    assert "computing and data" in text
    assert "git checkout 0123456789abcdef0123456789abcdef01234567" in text
    assert f"snakemake results/smoke/{RUN}/summary.json" in text
    assert "version of torch" in text
    assert "No commit has the code" not in text
    assert (site / RUN / "metrics.csv").read_text() == (site.parent / RUN / "metrics.csv").read_text()


def test_a_run_of_a_changed_working_tree_names_no_commit_to_check_out(suite: Suite, results: Path):
    changed = suite.runs("toy", "smoke", "vit", "qsr")[0]
    synthetic.rewrite(results / changed.directory, git={"commit": "0123456789", "dirty": True})
    site = report(suite, "smoke", results, results / "figures").parent
    text = (site / RUN / "index.html").read_text().replace("\n", " ")
    assert "git checkout" not in text
    assert "No commit has the code that trained it" in text
    assert re.search(r", 1 of \d+ runs with uncommitted changes", (site / "index.html").read_text())


def test_the_numbers_of_a_chart_are_those_of_the_run(site: Path):
    metrics = numbers_of(site, RUN)["metrics"]
    rows = [line.split(",") for line in (site.parent / RUN / "metrics.csv").read_text().splitlines()]
    column = rows[0].index("val_top1")
    assert metrics["val_top1"] == pytest.approx([float(row[column]) for row in rows[1:]], rel=1e-5)
    assert metrics["train_loss"][0] is None  # NaN before the training


def test_states_of_runs_are_told(suite: Suite, results: Path):
    runs = suite.runs("toy", "smoke", "vit", "qsr")
    synthetic.rewrite(results / runs[0].directory, config_hash="other")
    (results / runs[1].directory / "summary.json").unlink()
    (results / runs[2].directory / "metrics.csv").write_text("")
    site = report(suite, "smoke", results, results / "figures").parent
    overview = (site / "index.html").read_text()
    assert "stale: trained with configuration other" in overview
    assert "damaged: " in overview
    assert "no results of this run" in (site / runs[1].id / "index.html").read_text()
    assert "no audit of this scale" in (site / "audit.html").read_text()


def test_a_site_is_replaced_as_a_whole_by_the_same_bytes(suite: Suite, results: Path, tmp_path: Path):
    def files() -> dict[str, bytes]:
        return {str(file.relative_to(site)): file.read_bytes() for file in site.rglob("*") if file.is_file()}

    site = written(suite, results, tmp_path)
    links = Page(results / "index.html").links  # to the sites that exist
    assert {link.split("/")[0] for link in links if "/site/" in link} == {"smoke"}
    before = files()
    (site / "left over.html").write_text("")
    assert report(suite, "smoke", results, tmp_path).parent == site
    assert files() == before


def test_an_audit_of_another_version_is_refused(suite: Suite, results: Path, tmp_path: Path):
    (results / "smoke/audit.json").write_text("{}")
    with pytest.raises(ValueError, match=r"smoke/audit.json: not an audit: 'rows'; `resync audit` writes it again"):
        report(suite, "smoke", results, tmp_path)


def test_text_of_configurations_is_escaped(suite: Suite, results: Path):
    paper = suite.papers["toy"]
    object.__setattr__(paper, "venue", "<script>alert(1)</script>")
    try:
        site = report(suite, "smoke", results, results / "figures").parent
    finally:
        object.__setattr__(paper, "venue", "Tests 2024")
    assert not any("<script>alert" in page.read_text() for page in site.rglob("*.html"))

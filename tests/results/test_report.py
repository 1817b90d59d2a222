import re
from pathlib import Path

import pytest
import synthetic

from resync.audit import audit, write
from resync.config import Suite
from resync.render.item import render
from resync.report import report
from resync.report.coverage import coverage


@pytest.fixture
def page(suite: Suite, results: Path) -> tuple[Path, str]:
    """The report of a scale on which everything was done but figure 6."""
    figures = results.parent / "figures"
    for item in ("fig5", "table1"):
        render(suite, "toy", item, "smoke", results, figures)
    for folder in ("smoke/toy", "smoke"):
        write(audit(suite, "smoke", results), results / folder)
    path = report(suite, "smoke", results, figures)
    return path, path.read_text()


def test_the_page_holds_everything_and_needs_nothing(page: tuple[Path, str]):
    path, text = page
    assert path.name == "report.html"
    assert "A toy paper on how often workers synchronise" in text
    assert "QSR reaches at least the accuracy of parallel training" in text
    assert "none of 4 known published numbers that training measures" in text
    assert 'src="../../figures/smoke/toy/fig5.png"' in text
    assert 'src="../../figures/smoke/toy/table1.png"' in text
    assert "Not drawn yet." in text
    assert "Smoke-scale stand-in: mlp on digits, 8 workers, 660 steps." in text
    assert "<dt>The paper: QSR &lt; H = 4 &lt; parallel.</dt>" in text
    assert "<li>Figure 9: accuracy on &lt;other&gt; data<br>" in text
    assert 'src="http' not in text
    assert "<link" not in text


def test_every_item_stands_in_the_coverage_of_all_scales(suite: Suite, page: tuple[Path, str]):
    figures = page[0].parents[2] / "figures"
    states = {row.item.id: [cell.state for cell in row.cells] for row in coverage(suite, figures)}
    assert states == {
        "fig5": ["drawn", "absent", "not drawn yet"],
        "fig6": ["not drawn yet", "absent", "not drawn yet"],
        "fig7": ["not drawn yet", "absent", "not drawn yet"],
        "table1": ["drawn", "absent", "not drawn yet"],
        "table2": ["not drawn yet", "absent", "not drawn yet"],
    }
    assert "2 of 5 figures and tables of this scale are drawn" in page[1]
    assert "not declared at this scale: vit/parallel, vit/sgp" in page[1]
    assert "<code>snakemake figures/paper/toy/fig5.pdf</code>" in page[1]


def test_links_are_relative_and_lead_to_files(page: tuple[Path, str]):
    path, text = page
    links = [link for link in re.findall(r'(?:href|src)="([^"]+)"', text) if not link.startswith(("https:", "#"))]
    assert len(links) > 40
    files, anchors = zip(*(link.partition("#")[::2] for link in links), strict=True)
    missing = {file for file in files if not (path.parent / file).exists()}
    assert missing == {"toy/collected.csv"}
    page = (path.parent / "toy/audit.html").read_text()
    assert any(anchors)
    assert all(f'id="{anchor}"' in page for anchor in anchors if anchor)


def test_states_of_runs_are_told(suite: Suite, results: Path):
    runs = suite.runs("toy", "smoke", "vit", "qsr")
    synthetic.rewrite(results / runs[0].directory, config_hash="other")
    (results / runs[1].directory / "summary.json").unlink()
    (results / runs[2].directory / "metrics.csv").write_text("")
    text = report(suite, "smoke", results, results / "figures").read_text()
    assert "There is no audit of this scale yet." in text
    for state in ("stale <small>trained with configuration other", "not run <small>", "damaged <small>"):
        assert state in text


def test_text_of_configurations_is_escaped(suite: Suite, results: Path):
    paper = suite.papers["toy"]
    object.__setattr__(paper, "venue", "<script>alert(1)</script>")
    try:
        text = report(suite, "smoke", results, results / "figures").read_text()
    finally:
        object.__setattr__(paper, "venue", "Tests 2024")
    assert "<script>alert" not in text

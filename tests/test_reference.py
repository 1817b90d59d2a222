"""The results that the repository itself has: everything can be drawn from them, and is what is committed."""

import re
from contextlib import chdir
from pathlib import Path

import pytest

from resync.base.files import read_json
from resync.papers.archive.page_blocks import outdated
from resync.papers.archive.reference import check, place_of, wrong_quotes_in
from resync.papers.archive.unpack import scales_of
from resync.papers.audit.score import claims_of_papers, counted_in_words
from resync.papers.paper import Suite
from resync.papers.report import broken_links

ROOT = Path(__file__).parents[1]
PLACE = place_of(ROOT / "results", ROOT / "figures")
MEGABYTES = 25


@pytest.mark.slow
def test_what_is_committed_follows_from_the_archive(papers: Suite, tmp_path: Path):
    """Of tests of an archive that is made here, see tests/results/test_archive.py."""
    scales = scales_of(PLACE.archive)
    differing = [line for scale in scales for line in check(papers, scale, PLACE, tmp_path)[1]]
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    assert differing + wrong_quotes_in(pages, scales, PLACE, tmp_path) == []
    sites = [tmp_path / "results" / scale / "site" for scale in scales]
    assert [line for site in sites for line in broken_links(site)] == []
    assert any((site / "audit.html").exists() for site in sites)


def test_pages_show_what_the_archive_has(papers: Suite):
    """Without drawing: from the committed audits and figures."""
    readme = Path("README.md")
    with chdir(ROOT):  # links are relative to where a page is
        pages = [readme, *Path("docs/tables").glob("[cf]*.md")]
        assert list(outdated(pages, papers, place_of(Path("results"), Path("figures")))) == []
        assert ["<!--results: " in page.read_text() for page in pages] == [True] * 3
        shown = re.findall(r"\(figures/reference/\w+/(\w+)/(\w+)\.svg\) \|$", readme.read_text(), re.MULTILINE)
    galleries = {name: paper.gallery for name, paper in papers.papers.items() if paper.gallery}
    assert galleries.keys() <= dict(shown).keys()
    assert [(name, item) for name, item in shown if name in galleries and item not in galleries[name]] == []


def test_the_first_lines_of_readme_follow_from_the_archive():
    page = " ".join((ROOT / "README.md").read_text().split())
    audits = {scale: read_json(PLACE.archive / scale / "audit.json") for scale in scales_of(PLACE.archive)}
    claims = [claim for scale, audit in audits.items() for claim in claims_of_papers(audit["claims"], scale)]
    *tested, untested = counted_in_words(claims).split("; ")
    assert untested.endswith("are untested")
    assert [words for words in tested if words.removeprefix("of ") not in page] == []
    times = (ROOT / "docs/tables/times.md").read_text()
    verified, every = (
        [abs(float(error)) for error in re.findall(rf"\| [\d.]+ \w+ \({status}\) \| .* \| ([+-][\d.]+) % \|", times)]
        for status in ("verified", r"\w+")
    )
    cost = " ".join((ROOT / "docs/cost.md").read_text().split())
    for said, of in ((page, verified), (cost, verified), (cost, every)):
        within = sum(error <= 5 for error in of)
        assert f"{within} of {len(of)} are within 5 %, the worst is {max(of):.0f} % off" in said


def test_it_is_small_enough_for_git():
    files = [file for folder in (PLACE.archive, PLACE.figures) for file in folder.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < MEGABYTES * 10**6

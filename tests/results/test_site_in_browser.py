"""The site as a reader sees it in Chromium, from the file system: widths, filters, links, charts, accessibility."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from machine import program

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
axe = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="needs axe: pip install axe-playwright-python"
)

RUN = "toy/vit/qsr/seed0/index.html"
PAGES = ("index.html", "toy/index.html", "audit.html", "runs.html", "compare.html", RUN)
BLACK_PIXELS = """canvas => {
    const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    let count = 0;
    for (let at = 0; at < data.length; at += 4)
        count += data[at + 3] > 200 && data[at] + data[at + 1] + data[at + 2] < 120;
    return count;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[playwright.Browser]:
    chromium = program("chromium", "chromium")
    with playwright.sync_playwright() as started:
        # As root, Chromium starts without its sandbox only.
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


class Reader:
    """A page in the browser, and everything that should not happen on it."""

    def __init__(self, browser: playwright.Browser, site: Path, **look: object) -> None:
        self.site, self.page = site, browser.new_page(**look)
        self.complaints: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("requestfailed", lambda request: self.complaints.append(f"failed: {request.url}"))
        self.page.on("request", self._note)

    def _note(self, request: playwright.Request) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            self.complaints.append(f"outside: {request.url}")

    def open(self, page: str) -> playwright.Page:
        self.page.goto("about:blank")
        self.page.goto(f"file://{self.site / page}")
        return self.page

    def see(self, chart: int = 0) -> playwright.Locator:
        """A chart, once it is drawn."""
        place = self.page.locator(".chart").nth(chart)
        place.evaluate("chart => { const folded = chart.closest('details'); if (folded) folded.open = true; }")
        place.scroll_into_view_if_needed()
        place.locator("canvas").wait_for()
        return place


@pytest.fixture
def reader(browser: playwright.Browser, site: Path) -> Iterator[Reader]:
    reader = Reader(browser, site, viewport={"width": 1400, "height": 900})
    yield reader
    reader.page.close()
    assert reader.complaints == []


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1400, "light")])
def test_every_page_fits_its_width_and_is_accessible(browser, site: Path, width: int, scheme: str):
    reader = Reader(browser, site, viewport={"width": width, "height": 900}, color_scheme=scheme)
    for name in PAGES:
        page = reader.open(name)
        for index in range(page.locator(".chart[data-spec]").count()):
            assert scheme == "light" or reader.see(index).locator("canvas").evaluate(BLACK_PIXELS) == 0, name
        assert page.evaluate("document.scrollingElement.scrollWidth") == width, name
        smallest = page.evaluate(
            "Math.min(...[...document.querySelectorAll('main *')].map(e => parseFloat(getComputedStyle(e).fontSize)))"
        )
        assert smallest >= 9, name
        found = axe.Axe().run(page, options={"resultTypes": ["violations"], "preload": False}).response["violations"]
        assert [(each["id"], each["nodes"][0]["html"]) for each in found] == [], name
    reader.page.close()
    assert reader.complaints == []


def shown(page: playwright.Page) -> list[str]:
    return page.locator("tr[data-row]:visible").evaluate_all("rows => rows.map(row => row.id)")


def test_filters_are_kept_in_the_address(reader: Reader):
    page = reader.open("audit.html")
    few = shown(page)
    page.get_by_label("also lines that are untested").check()
    page.wait_for_url("**rest=1*")
    every = shown(page)
    assert set(few) < set(every)

    def counted(number: int | None = None) -> list[str]:
        """What is shown once the page has said so: it follows its address, some time after an entry."""
        text = re.compile(rf"^{number or r'[0-9]+'} of {len(every)} shown$")
        playwright.expect(page.locator("output")).to_have_text(text)
        return shown(page)

    page.locator("select[name=verdict]").select_option("agrees")
    page.wait_for_url("**verdict=agrees*")
    held = counted()
    assert held
    assert set(held) < set(every)
    page.get_by_label("Search").fill("parallel")
    page.wait_for_url("**parallel*")
    found = counted()
    assert set(found) < set(held)
    page.reload()
    assert counted(len(found)) == found
    assert page.get_by_label("Search").input_value() == "parallel"
    page.get_by_role("button", name="Show all").click()
    assert counted(len(few)) == few


def test_the_search_is_the_first_stop_and_finds_names(reader: Reader):
    page = reader.open("audit.html")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.type("h4_volume")
    playwright.expect(page.locator("output")).to_have_text(re.compile("^1 of "))
    assert shown(page) == ["toy-h4_volume"]


def test_columns_are_sorted_and_the_order_is_kept_in_the_address(reader: Reader):
    page = reader.open("runs.html")
    values = "cells => cells.map(cell => Number(cell.dataset.value))"
    column = page.locator("td[data-value]:nth-child(4)")
    page.get_by_role("button", name="At the end").click()
    ascending = column.evaluate_all(values)
    assert ascending == sorted(ascending)
    page.get_by_role("button", name="At the end").click()
    assert page.locator("th[aria-sort=descending]").inner_text().startswith("At the end")
    page.reload()
    assert column.evaluate_all(values) == ascending[::-1]


def test_deep_links_lead_to_their_line_and_filter(reader: Reader):
    page = reader.open("audit.html#toy-h4_volume")
    line = page.locator("#toy-h4_volume")
    assert line.evaluate("row => row.matches(':target')")
    assert 0 <= line.bounding_box()["y"] < 900
    page = reader.open("toy/index.html")
    page.locator(".tally").get_by_role("link", name="agrees").first.click()
    assert "audit.html" in page.url
    assert set(page.locator("tr[data-row]:visible").evaluate_all("rows => rows.map(row => row.dataset.verdict)")) == {
        "agrees"
    }
    page.locator("tr[data-row]:visible a", has_text="fig5").first.click()
    assert page.url.endswith("toy/index.html#fig5")


def test_a_chart_tells_values_and_switches_lines_axes_and_ranges(reader: Reader):
    page = reader.open("toy/index.html")
    chart = reader.see()
    chart.locator(".u-over").hover()
    assert "Parallel SGD (n=3): " in chart.locator(".values").inner_text()
    chart.get_by_role("button", name="Parallel SGD").click()
    chart.locator(".u-over").hover(position={"x": 40, "y": 40})
    assert "Parallel SGD" not in chart.locator(".values").inner_text()
    chart.get_by_label("Horizontal axis").select_option("bytes")
    chart.locator(".u-over").hover()
    assert chart.locator(".values").inner_text().startswith("Sent by a worker (MB)")
    chart.get_by_label("each seed").check()
    chart.get_by_label("log y").check()
    chart.locator(".u-over").hover()
    assert "seed 2: " in chart.locator(".values").inner_text()
    page.keyboard.press("Escape")


def test_a_figure_of_other_points_has_a_chart_with_its_panels(reader: Reader):
    page = reader.open("toy/index.html#fig7")
    page.locator("#fig7 summary", has_text="Chart").click()
    page.locator("#fig7 canvas").wait_for()
    chart = page.locator("#fig7 .chart")
    assert chart.locator(".lines button").all_inner_texts() == [
        "QSR, H_base = 4, computed",
        "QSR, H_base = 4, published, verified",
        "Limit, computed",
    ]
    assert chart.locator(".lines sub").all_inner_texts() == ["base", "base"]
    chart.get_by_label("Panel").select_option(label="(b) Time (s) against Workers")
    chart.locator(".u-over").hover()
    assert chart.locator(".values").inner_text().startswith("Workers ")
    assert "Model, simulated: " in chart.locator(".values").inner_text()


def test_a_chart_is_read_and_zoomed_by_keys(reader: Reader):
    reader.open("toy/index.html")
    chart = reader.see()
    chart.locator(".plot").focus()
    reader.page.keyboard.press("ArrowRight")
    assert chart.locator(".values").inner_text().startswith("Epoch ")
    drawn = "plot => plot.querySelector('canvas').toDataURL()"
    whole = chart.evaluate(drawn)
    for key, same in (("+", False), ("Escape", True)):
        reader.page.keyboard.press(key)
        reader.page.wait_for_timeout(50)
        assert (chart.evaluate(drawn) == whole) is same


def test_the_data_of_a_chart_are_downloaded_as_they_are_drawn(reader: Reader, tmp_path: Path):
    reader.open("toy/index.html")
    chart = reader.see()
    with reader.page.expect_download() as download:
        chart.get_by_role("button", name="CSV").click()
    download.value.save_as(tmp_path / "data.csv")
    with (tmp_path / "data.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["line", "Epoch", "Validation top-1 accuracy (%)", "smallest", "largest"]
    assert len({row["line"] for row in rows}) == 4
    assert all(
        float(row["smallest"]) <= float(row["Validation top-1 accuracy (%)"]) <= float(row["largest"]) for row in rows
    )


def test_chosen_runs_are_compared(reader: Reader):
    page = reader.open("runs.html")
    for run in ("toy/vit/qsr/seed0", "toy/vit/h4/seed1"):
        page.locator("tr", has_text=run.rpartition("/")[0]).locator("summary").click()
        page.get_by_label(f"Choose {run}").check()
    page.get_by_role("link", name="Compare 2 runs").click()
    page.locator("#comparison canvas").wait_for()
    assert page.locator("#comparison th", has_text="sync.period.rule").count() == 1
    assert page.locator("#comparison th", has_text="Validation top-1 accuracy").count() == 1
    page.get_by_label("Add a run").fill("toy/vit/sgp/seed0")
    page.get_by_role("button", name="Add", exact=True).click()
    page.locator("#comparison th", has_text="sync.topology").wait_for()
    page.reload()
    assert page.locator("#chosen button").count() == 3
    page.get_by_role("button", name="Remove toy/vit/qsr/seed0").click()
    assert "qsr" not in page.url


@pytest.mark.parametrize(("width", "folded"), [(390, True), (1400, False)])
def test_everything_can_be_read_without_javascript(browser, site: Path, width: int, folded: bool):
    """The contents of a page are folded on a phone only."""
    reader = Reader(browser, site, java_script_enabled=False, viewport={"width": width, "height": 900})
    page = reader.open("toy/index.html")
    link, summary = page.locator(".contents a").first, page.locator("summary", has_text="Figures and tables")
    assert (link.is_visible(), summary.is_visible()) == (not folded, folded)
    assert page.locator("#fig5 img").is_visible()
    assert page.locator("#table1 table[data-sortable]").is_visible()
    assert page.locator(".chart:visible, form:visible").count() == 0
    assert reader.open("audit.html").locator("tr[data-row]:visible").count() > 10
    assert reader.open(RUN).get_by_text("git checkout").is_visible()
    page.close()
    assert reader.complaints == []


def test_paper_shows_the_printed_figure_and_no_controls(reader: Reader):
    page = reader.open("toy/index.html")
    page.emulate_media(media="print")
    assert page.locator("#fig5 img").is_visible()
    assert page.locator(".chart:visible, header:visible, .files:visible").count() == 0

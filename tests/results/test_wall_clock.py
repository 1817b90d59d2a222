"""The items that show the wall-clock model: the content of cells and the origin of their numbers."""

import csv
import io
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import pytest

from resync.papers.paper import Suite
from resync.papers.paper.published import PublishedValue
from resync.papers.plan.network import LINKS
from resync.papers.render import time_per_iteration, wall_clock
from resync.papers.render.item import ItemData, load, render
from resync.papers.render.table import Table
from resync.runs.metrics.registry import METRICS
from resync.runs.results.runs import RunResult, state_of
from resync.tools.workflow import TABLE_FILES


def made_up(series: str, value: float, status: str = "verified", metric: str = "training_hours") -> PublishedValue:
    return PublishedValue(
        id=f"{series}_{metric}", experiment="vit", series=series, metric=metric, value=value,
        unit=METRICS[metric].unit, status=status, source="made up",
    )  # fmt: skip


def toy(suite: Suite, results: Path, *published: PublishedValue) -> ItemData:
    return replace(load(suite, "toy", "table1", "smoke", results), published=published)


def own(suite: Suite, results: Path, series: str) -> list[RunResult]:
    """A series at smoke scale."""
    states = [state_of(run, results) for run in suite.runs("toy", "smoke", "vit", series)]
    return [state.result for state in states if state.result]


PAIR = (made_up("parallel", 10.0), made_up("qsr", 8.0))


def cells(table: Table) -> dict[str, tuple[str, ...]]:
    """The texts of each method's cells with their marks."""
    return {row[0].text: tuple(cell.text + cell.mark for cell in row[1:]) for row in table.rows}


def test_cells_say_what_is_published_fitted_predicted_and_measured(suite: Suite, finished: Path):
    table = wall_clock.prepare(toy(suite, finished, *PAIR, made_up("h4", 8.7, "secondary")))
    rows = cells(table)
    parallel, h4 = rows["Parallel SGD"], rows["Local SGD, H = 4"]
    assert parallel[1:4] == ("10.0", "\N{EN DASH}", "10.00*")
    assert parallel[4].endswith("‡")
    assert parallel[5] == "\N{EN DASH}"
    assert h4[1] == "8.7†"
    assert h4[3].endswith(" ± 0.05")
    assert float(h4[5]) == pytest.approx(100 * (float(h4[3].split()[0]) / 8.7 - 1), abs=0.1)
    seconds = [result.final("training_hours") * 3600 for result in own(suite, finished, "parallel")]
    communication = own(suite, finished, "parallel")[0].final("communication_seconds")
    assert parallel[6] == f"{mean(seconds):.2f} ± {stdev(seconds):.2f}"
    assert parallel[7] == f"{communication:.2f} ± 0.00"
    # Gossip is not measured in averages over all workers, so they predict nothing of it.
    assert rows["SGP"][:6] == ("\N{EN DASH}",) * 6
    assert "fitted to Parallel SGD (verified) and QSR, H_base = 4 (verified) · * fitted" in table.note
    assert table.note.endswith("here: 3 seeds · † secondary · ‡ derived")


def test_a_prediction_is_as_certain_as_what_it_was_fitted_to(suite: Suite, finished: Path):
    unsure = wall_clock.prepare(toy(suite, finished, made_up("parallel", 10.0), made_up("qsr", 8.0, "unverified")))
    assert "Parallel SGD (verified) and QSR, H_base = 4 (unverified)" in unsure.note
    records = {record["series"]: record for record in unsure.records}
    assert records["h4"]["model_basis"] == "predicted from unverified"
    volume = made_up("qsr", 19.0, "unverified", "volume_percent")
    assert "QSR, H_base = 4 (unverified)" in wall_clock.prepare(toy(suite, finished, *PAIR, volume)).note


def test_seeds_that_are_missing_are_said(suite: Suite, results: Path):
    for run in suite.runs("toy", "smoke", "vit", "h4")[1:]:
        (results / run.directory / "summary.json").unlink()
    table = wall_clock.prepare(toy(suite, results, *PAIR))
    [left] = own(suite, results, "h4")
    assert cells(table)["Local SGD, H = 4"][6] == f"{left.final('training_hours') * 3600:.2f}a"
    assert table.note.endswith("a 2 of 3 not run")
    assert "here: 1 and 3 seeds" in table.note


def test_numbers_of_the_cells_are_in_the_csv(suite: Suite, finished: Path):
    table = wall_clock.prepare(toy(suite, finished, *PAIR, made_up("parallel", 3.0, "derived", "communication_hours")))
    rows = {row["series"]: row for row in csv.DictReader(io.StringIO(table.csv()))}
    assert rows["parallel"]["model_basis"] == "fitted"
    assert rows["parallel"]["published_communication_hours_status"] == "derived"
    measured = mean(result.final("training_hours") for result in own(suite, finished, "parallel"))
    assert float(rows["parallel"]["here_hours_mean"]) == pytest.approx(measured)
    assert rows["sgp"]["model_hours"] == rows["sgp"]["published_hours"] == ""
    assert float(rows["h4"]["model_hours"]) + float(rows["h4"]["model_hours_rounding"]) < 10


def test_without_two_known_hours_there_is_no_table(suite: Suite, finished: Path):
    with pytest.raises(ValueError, match="two known times of runs that communicate differently, found toy/vit/qsr"):
        wall_clock.prepare(load(suite, "toy", "table1", "smoke", finished))


def test_the_table_of_qsr_needs_no_results(papers: Suite, tmp_path: Path):
    files = render(papers, "qsr", "table4a", "paper", tmp_path / "results", tmp_path / "figures")
    assert sorted(file.suffix for file in files) == sorted(TABLE_FILES)
    text = next(file for file in files if file.suffix == ".md").read_text()
    mark = "<sup>‡</sup>"
    assert f"| Local AdamW (H=4) | 23,400 | 21.3{mark} | 1.81{mark} | 21.26 ± 0.05 |" in text
    assert f"| QSR (H_base=4) | 9,711 | 20.2 | 0.75{mark} | 20.20<sup>\\*</sup> | 0.75 ± 0.01{mark} |" in text
    assert "not run" in text


@pytest.fixture(scope="module")
def data(papers: Suite, tmp_path_factory: pytest.TempPathFactory) -> ItemData:
    return load(papers, "sgp", "time_per_iteration", "smoke", tmp_path_factory.mktemp("no_results"))


@pytest.fixture(scope="module")
def panels(data: ItemData) -> time_per_iteration.Networks:
    # Not the bound in the abstract: the exact hours.
    published = [value for value in data.published if value.id != "ar_32_hours_abstract"]
    return time_per_iteration.prepare(replace(data, published=published))


def test_lines_go_through_what_calibrates_and_predict_the_rest(panels: time_per_iteration.Networks):
    ethernet = panels.panels[0]
    curves = ethernet.curves
    points = {(time.algorithm, time.workers): time for time in ethernet.times}
    assert len(points) == 12
    for workers in (4, 32):
        assert curves["allreduce"][workers] == pytest.approx(points["allreduce", workers].seconds)
    assert points["sgp", 32].status == "verified"
    assert curves["sgp"][32] == pytest.approx(points["sgp", 32].seconds, rel=0.04)
    assert curves["osgp"][32] < curves["sgp"][32] < curves["allreduce"][32]
    assert curves["dpsgd"][32] - curves["sgp"][32] == pytest.approx(LINKS["ethernet_10g"].message(4 * 25_557_032))
    assert "AR-SGD +0.8 to +1.3 %, D-PSGD -27.7 to -22.7 %, SGP -4.1 to +4.0 %" in panels.note


def test_other_panels_are_the_same_model_on_other_networks(panels: time_per_iteration.Networks):
    assert [panel.title for panel in panels.panels] == [
        "10 Gbit/s Ethernet\nAR: recursive doubling", "10 Gbit/s Ethernet\nAR: ring", "100 Gbit/s InfiniBand\nAR: ring",
    ]  # fmt: skip
    assert [len(panel.times) for panel in panels.panels] == [12, 0, 0]
    at_32 = [{name: values[32] for name, values in panel.curves.items()} for panel in panels.panels]
    assert at_32[0]["allreduce"] > at_32[1]["allreduce"] > at_32[2]["allreduce"]
    message = LINKS["infiniband_100g"].message(4 * 25_557_032)
    assert at_32[2]["sgp"] == pytest.approx(at_32[2]["osgp"] + message)
    waiting = {name: list(values.values()) for name, values in panels.waiting.items()}
    assert waiting["allreduce"][0] == pytest.approx(1 / 2 + 1 / 3 + 1 / 4)
    assert waiting["allreduce"][3] > waiting["dpsgd"][3] > 0
    assert waiting["allreduce"][3] > waiting["sgp"][3] > waiting["osgp"][3] > waiting["adpsgd"][3] == 0


def test_own_times_are_points_at_paper_scale(papers: Suite, suite: Suite, finished: Path, tmp_path: Path):
    data = load(papers, "sgp", "time_per_iteration", "paper", tmp_path)
    result = state_of(suite.runs("toy", "smoke")[0], finished).result
    series = [
        replace(series, states=tuple(replace(state, status="finished", result=result) for state in series.states))
        for series in data.series
        if series.name in (("resnet50_ethernet", "sgp_8"), ("resnet50_infiniband", "dpsgd_16"))
    ]
    panels = time_per_iteration.prepare(replace(data, series=tuple(series))).panels
    measured = [
        [(time.algorithm, time.workers, time.seconds) for time in panel.times if time.status == "measured"]
        for panel in panels
    ]
    seconds = pytest.approx(result.final("seconds_per_step"))
    assert measured == [[("sgp", 8, seconds)] * 2, [], [("dpsgd", 16, seconds)] * 2]  # one for each seed


def test_published_seconds_are_points_where_no_hours_are_known(data: ItemData):
    seconds = made_up("ar_8", 0.3, "secondary", "seconds_per_step")
    known = seconds.model_copy(update={"experiment": "resnet50_infiniband"})
    panels = time_per_iteration.prepare(replace(data, published=(*data.published, known))).panels
    assert panels[2].times == [time_per_iteration.Time("allreduce", 8, 0.3, "secondary")]


def test_a_panel_is_of_an_experiment_of_the_item(data: ItemData):
    wrong = tuple(panel.model_copy(update={"experiment": "graphs"}) for panel in data.options.panels)
    item = data.item.model_copy(update={"options": data.options.model_copy(update={"panels": wrong})})
    message = "found a panel of experiment graphs, allowed: resnet50_ethernet, resnet50_infiniband"
    with pytest.raises(ValueError, match=message):
        time_per_iteration.prepare(replace(data, item=item))

import csv
import hashlib
import io
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import synthetic
from matplotlib.colors import to_rgb

from resync.base.settings.options import option_names, options_of
from resync.papers.archive.rounding import difference
from resync.papers.paper import Suite
from resync.papers.paper.published import PublishedValue
from resync.papers.plan.modelled import modelled_time
from resync.papers.render import (
    accuracy_curves,
    cost_curves,
    metric_against_option,
    metrics_table,
    panels,
    period_and_accuracy,
    period_schedule,
    training_curves,
)
from resync.papers.render.item import load, render
from resync.papers.render.lines import BELOW, Line, Panel, Panels, spread
from resync.papers.render.origin import read_origin
from resync.papers.render.points import Level, points_csv
from resync.papers.render.style import COLUMN, TEXT, distinct, encode, look, style_of, style_of_algorithm
from resync.papers.render.table import Cell, Heading, Table
from resync.papers.render.table_tex import tex
from resync.runs.results.errors import ResultsError
from resync.runs.results.runs import read_run, state_of
from resync.runs.run import Run
from resync.tools.cli import main
from resync.tools.cli.ending import unmeasured
from resync.tools.workflow import FIGURE_FILES, TABLE_FILES

CONFIGS = Path(__file__).parent / "configs"


def drop(results: Path, *runs: Run) -> None:
    for run in runs:
        (results / run.directory / "summary.json").unlink()


def diverge(results: Path, run: Run) -> None:
    for file in (results / run.directory).iterdir():
        file.unlink()
    (results / run.directory).rmdir()
    synthetic.write_run(run, results, diverged_at=400)


def seeds(suite: Suite, series: str) -> list[Run]:
    return suite.runs("toy", "smoke", "vit", series)


@pytest.mark.parametrize("item", ["fig5", "fig6", "fig7", "table1", "table2"])
def test_files_are_complete_and_the_same_bytes_again(item: str, suite: Suite, finished: Path, tmp_path: Path):
    first, second = (render(suite, "toy", item, "smoke", finished, tmp_path / folder) for folder in "ab")
    wanted = TABLE_FILES if item.startswith("table") else FIGURE_FILES
    assert sorted(first) == sorted((tmp_path / "a/smoke/toy" / item).with_suffix(suffix) for suffix in wanted)
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_figures_have_searchable_text_and_no_dates(suite: Suite, finished: Path, tmp_path: Path):
    files = {path.suffix: path for path in render(suite, "toy", "fig5", "smoke", finished, tmp_path)}
    pdf, png, svg = (files[suffix].read_bytes() for suffix in (".pdf", ".png", ".svg"))
    assert all(word not in pdf for word in (b"/CreationDate", b"/Type3"))
    assert b"/FontFile2" in pdf or b"/Type42" in pdf or b"/CIDFontType2" in pdf
    assert (b"<dc:date>" in svg, b"<text" in svg) == (False, True)
    assert len(svg) < 60_000
    assert min(struct.unpack(">II", png[16:24])) > 300


def test_a_figure_reads_its_own_runs_only(
    suite: Suite, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    for run in [*seeds(suite, "h4"), *seeds(suite, "qsr")[:1]]:
        (results / run.directory / "metrics.csv").write_text("damaged")
    render(suite, "toy", "fig6", "smoke", results, tmp_path)
    assert capsys.readouterr().err == ""
    render(suite, "toy", "fig5", "smoke", results, tmp_path)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert all(line.startswith("resync: warning: toy/vit/") and "half-written" in line for line in lines)


def test_lines_are_means_of_finished_seeds_with_a_band(suite: Suite, finished: Path):
    panels = period_and_accuracy.prepare(load(suite, "toy", "fig5", "smoke", finished))
    qsr = panels.panels[1].lines[2]
    last = [synthetic.tables(run)[0][-1]["val_top1"] for run in seeds(suite, "qsr")]
    assert qsr.label == "QSR, H_base = 4"
    assert qsr.y[-1] == pytest.approx(np.mean(last))
    assert (qsr.low[-1], qsr.high[-1]) == (min(last), max(last))
    assert qsr.x[-1] == 30
    assert list(panels.panels[0].lines[1].y) == [4] * len(panels.panels[0].lines[1].y)
    assert panels.panels[0].lines[2].y.max() > 16


def panels_with(suite: Suite, results: Path, **options: Any) -> Panels:
    """Both panels of figure 6 with other options."""
    data = load(suite, "toy", "fig6", "smoke", results)
    chosen = options_of("render", "accuracy_curves")(**options)
    return accuracy_curves.prepare(replace(data, item=data.item.model_copy(update={"options": chosen})))


def test_the_band_over_workers_is_between_their_extremes(suite: Suite, results: Path):
    for run in [*seeds(suite, "parallel"), *seeds(suite, "sgp")]:
        file = results / run.directory / "metrics.csv"
        table = pd.read_csv(file)
        for column, distance in (("mean", 0.0), ("min", 1 + run.seed), ("max", -2.0)):
            table[f"worker_val_top1_{column}"] = table["val_top1"] - distance
        table.to_csv(file, index=False, na_rep="nan")
        synthetic.reseal(file.parent)
    panels = panels_with(suite, results, metric="worker_val_top1_mean", band="workers")
    for line in (line for panel in panels.panels for line in panel.lines):
        np.testing.assert_allclose(line.y - line.low, np.mean([1, 2, 3]))
        np.testing.assert_allclose(line.high - line.y, 2)
    assert panels.panels[0].y_axis == "Workers' mean validation top-1 accuracy (%)"


def test_an_accuracy_is_drawn_as_an_error_and_a_loss_in_bits(suite: Suite, finished: Path):
    accuracy = panels_with(suite, finished)
    error = panels_with(suite, finished, unit="error %")
    np.testing.assert_allclose(error.panels[0].lines[0].y, 100 - accuracy.panels[0].lines[0].y)
    assert error.panels[0].y_axis == "Validation top-1 error (%)"
    nats, bits = (panels_with(suite, finished, metric="val_loss", unit=unit) for unit in (None, "bits"))
    np.testing.assert_allclose(bits.panels[0].lines[0].y, np.log2(np.exp(nats.panels[0].lines[0].y)))
    assert (nats.panels[0].y_axis, bits.panels[0].y_axis) == ("Validation loss (nats)", "Validation loss (bits)")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unit": "bits"}, "found 'bits', allowed for val_top1: error %, null"),
        ({"metric": "val_loss", "unit": "error %"}, "found 'error %', allowed for val_loss: bits, null"),
        ({"metric": "volume_percent", "unit": "error %"}, "found 'error %', allowed for volume_percent: null"),
        ({"metric": "train_loss", "band": "workers"}, "found workers, allowed for train_loss: seeds"),
    ],
)
def test_a_metric_has_its_own_units_and_bands(options: dict[str, str], message: str):
    with pytest.raises(ValueError, match=message):
        options_of("render", "accuracy_curves")(**options)


def test_a_logarithmic_axis_shows_what_is_positive_after_the_cut(suite: Suite, finished: Path):
    data = load(suite, "toy", "fig6", "smoke", finished)
    chosen = options_of("render", "training_curves")(metrics=["val_loss", "val_top1"], log=["val_loss"])
    panels = training_curves.prepare(replace(data, item=data.item.model_copy(update={"options": chosen})))
    figure = training_curves.draw(panels, TEXT)
    loss, accuracy = figure.axes
    assert (loss.get_yscale(), accuracy.get_yscale()) == ("log", "linear")
    assert (loss.get_title("left"), accuracy.get_title("left")) == ("(a)", "(b)")
    positive = [y for line in panels.panels[0].lines for y in line.low[1:] if y > 0]
    assert 0 < loss.get_ylim()[0] < min(positive)
    with pytest.raises(ValueError, match="log: found 'train_loss', allowed: val_loss, val_top1"):
        options_of("render", "training_curves")(metrics=["val_loss", "val_top1"], log=["train_loss"])


def test_values_that_are_published_of_an_epoch_are_open_circles(suite: Suite, finished: Path):
    data = load(suite, "toy", "fig6", "smoke", finished)
    experiment, series = data.drawn[0].name
    of = {"id": "one", "experiment": experiment, "series": series, "metric": "val_top1", "unit": "%", "source": "log"}
    published = [
        PublishedValue(**of, value=value, at_epoch=epoch, status="verified", scale=scale)
        for value, epoch, scale in ((55.0, 1, "smoke"), (66.0, 999, "smoke"), (77.0, 1, "paper"))
    ]
    chosen = options_of("render", "training_curves")(metrics=["val_top1", "val_loss"])
    item = data.item.model_copy(update={"options": chosen})
    panels = training_curves.prepare(replace(data, item=item, published=tuple(published)))
    marked = [(point.x, point.y) for point in panels.points() if point.shows == "published"]
    assert marked == [(1, 55.0)]
    assert "open circles: published" in panels.setting
    low, high = panels.panels[0].limits
    assert low < 55 < high
    assert [55.0] in [list(line.get_ydata()) for line in training_curves.draw(panels, TEXT).axes[0].get_lines()]


def test_no_figure_or_table_shows_the_seconds_of_a_simulation(suite: Suite, finished: Path):
    """Times of workers that take turns are those of their steps and messages on the paper's network."""
    data = load(suite, "toy", "fig6", "smoke", finished)
    _, of_time = accuracy_curves.prepare(data).panels
    assert of_time.x_axis == "Modelled time (s)"
    for line, series in zip(of_time.lines, data.series, strict=True):
        assert series.time
        clock = series.time.clock
        assert line.x[-1] == pytest.approx(clock.total)
        assert clock.compute == pytest.approx(660 * 0.05, rel=0.01)
        assert series.evidence("seconds_per_step").values == pytest.approx([clock.per_step])
    unknown = replace(data, series=tuple(replace(series, time=None) for series in data.series))
    assert [panel.x_axis for panel in accuracy_curves.prepare(unknown).panels] == ["Epoch"]
    table = metrics_table.prepare(replace(unknown, item=suite.papers["toy"].items["table2"]))
    assert not [heading.text for heading in table.headings if "time" in heading.text.lower()]


def test_diverged_and_missing_seeds_are_shown_as_such(suite: Suite, results: Path, tmp_path: Path):
    diverge(results, seeds(suite, "h4")[1])
    drop(results, seeds(suite, "parallel")[2], *seeds(suite, "sgp"))
    synthetic.rewrite(results / seeds(suite, "qsr")[0].directory, config_hash="other")
    (results / seeds(suite, "qsr")[2].directory / "steps.csv").write_text("damaged")
    data = load(suite, "toy", "fig5", "smoke", results)
    panels = period_and_accuracy.prepare(data)
    assert [line.label for line in panels.panels[1].lines] == [
        "Parallel SGD (1 of 3 not run)",
        "Local SGD, H = 4 (1 of 3 diverged)",
        "QSR, H_base = 4 (1 of 3 stale, 1 of 3 damaged)",
        "SGP (not run)",
    ]
    assert [len(line.diverged) for line in panels.panels[1].lines] == [0, 1, 0, 0]
    assert np.isfinite(panels.panels[1].lines[1].y).all()
    assert panels.panels[1].lines[3].y.size == 0
    assert panels.setting.endswith(" · cross: diverged · not run: SGP")
    files = render(suite, "toy", "table1", "smoke", results, tmp_path)
    text = next(path for path in files if path.suffix == ".md").read_text()
    assert "| 96.49 ± 0.11 (n=2)<sup>a</sup> |" in text
    assert "| SGP | not run | unknown | \N{EN DASH} | \N{EN DASH} | \N{EN DASH} |" in text
    render(suite, "toy", "fig5", "smoke", results, tmp_path)
    table = next(path for path in files if path.suffix == ".csv").read_text()
    rows = {row["series"]: row for row in csv.DictReader(io.StringIO(table))}
    assert (rows["h4"]["finished"], rows["h4"]["diverged"], rows["h4"]["declared"]) == ("2", "1", "3")
    assert rows["sgp"]["val_top1_mean"] == ""


def test_a_figure_without_any_result_is_an_error_and_a_table_says_not_run(suite: Suite, tmp_path: Path):
    with pytest.raises(ResultsError, match="fig5: none of its runs has finished"):
        render(suite, "toy", "fig5", "smoke", tmp_path, tmp_path)
    for run in seeds(suite, "h4"):
        synthetic.write_run(run, tmp_path, diverged_at=400)
    rows = metrics_table.prepare(load(suite, "toy", "table1", "smoke", tmp_path)).rows
    assert [row[1] for row in rows] == [
        Cell("diverged") if row[0].text[:5] == "Local" else Cell("not run") for row in rows
    ]
    render(suite, "toy", "fig5", "smoke", tmp_path, tmp_path)


def texts(row: tuple[Cell, ...]) -> tuple[str, ...]:
    return tuple(cell.text + cell.mark for cell in row)


def test_a_metric_that_older_runs_have_not_measured_says_what_to_type(suite: Suite, finished: Path):
    states = [state_of(run, finished) for run in suite.item_runs("toy", "table2", "smoke")]
    items = ["toy/fig7", "toy/table1", "toy/table2"]
    assert list(unmeasured(suite, "smoke", items, states)) == []
    for number in (0, 1):
        result = states[number].result
        final = {name: value for name, value in result.summary["final"].items() if name != "val_top1"}
        columns = {name: values for name, values in result.evaluations.items() if name != "val_top1"}
        older = replace(result, summary=result.summary | {"final": final}, evaluations=columns)
        states[number] = replace(states[number], result=older)
    said, typed = unmeasured(suite, "smoke", items, states)
    assert said == "2 runs of toy have not measured val_top1; to train them again:"
    assert typed == "  snakemake toy -R train --config scale=smoke"


def test_the_table_shows_ours_beside_published_with_its_status(suite: Suite, finished: Path):
    table = metrics_table.prepare(load(suite, "toy", "table1", "smoke", finished))
    of = [heading.text.rpartition(", ")[2] for heading in table.headings]
    assert of == ["Method", "smoke scale", "published", "smoke scale", "published", "Rounds"]
    rows = {row[0].text: texts(row[1:]) for row in table.rows}
    assert rows["Parallel SGD"][1:] == ("79.86 ± 0.03‡", "100.00", "100.0", "660")
    assert rows["QSR, H_base = 4"][1:] == ("80.98", "19.55", "10.4§", "129")
    assert rows["SGP"][1] == "unknown"
    assert table.note.endswith("in % of one per step · ‡ derived · § unverified")


def test_the_best_means_are_bold_with_those_that_overlap(suite: Suite, tmp_path: Path):
    accuracies = {"parallel": (97.0, 97.2), "h4": (97.4, 97.6), "qsr": (97.5, 97.9), "sgp": (90.0, 99.0)}
    for series, values in accuracies.items():
        for run, value in zip(seeds(suite, series), values, strict=False):
            synthetic.write_run(run, tmp_path, top1=value)
    table = metrics_table.prepare(load(suite, "toy", "table1", "smoke", tmp_path))
    # 97.70 ± 0.28 overlaps with 97.50 ± 0.14 and with 94.50 ± 6.36, and not with 97.10 ± 0.14.
    assert [row[1].best for row in table.rows] == [False, True, True, True]
    assert not any(cell.best for row in table.rows for cell in row[2:])
    assert "bold: the best mean, and those whose ± overlaps with it" in table.note


def test_a_table_of_metrics_has_published_columns_where_something_is_published(suite: Suite, results: Path):
    drop(results, seeds(suite, "sgp")[0])
    table = metrics_table.prepare(load(suite, "toy", "table2", "smoke", results))
    published = [" published" in heading.text for heading in table.headings]
    assert published == [False, False, False, True, False, True]
    rows = {row[0].text: texts(row[1:]) for row in table.rows}
    assert rows["Parallel SGD"][2] == "79.86 ± 0.03‡"
    assert rows["Parallel SGD"][4] == "\N{EN DASH}"
    assert rows["QSR, H_base = 4"][2::2] == ("80.98", "20.2")
    model = modelled_time(suite, seeds(suite, "qsr")[0], synthetic.PARAMETERS)
    assert model
    assert float(rows["QSR, H_base = 4"][3]) == pytest.approx(model.whole.total / 60, abs=0.05)  # minutes
    assert rows["SGP"][0].endswith("(n=2)")
    assert "one worker sends nothing" not in table.note

    assert "mean ± standard deviation of 2 to 3 of 3 seeds" in table.note
    assert table.records[0]["training_hours_modelled_mean"] > table.records[2]["training_hours_modelled_mean"]


def test_what_one_worker_does_not_send_is_nothing(papers: Suite, tmp_path: Path):
    alone = papers.item_runs("outer_optimizers", "grid", "smoke")[0]
    synthetic.write_short_run(alone, tmp_path, 75.0)
    table = metrics_table.prepare(load(papers, "outer_optimizers", "grid", "smoke", tmp_path))
    assert (alone.workers, table.rows[0][2].text) == (1, "0")
    assert table.note.endswith("in % of one per step; one worker sends nothing")


def test_a_time_to_which_the_model_is_fitted_is_no_prediction(papers: Suite, suite: Suite, finished: Path):
    runs = papers.runs("sgp", "mini", "resnet50_ethernet")
    times = {run.label: modelled_time(papers, run) for run in runs}
    assert {label for label, time in times.items() if time and time.fitted} == {"AR-SGD, 4 nodes", "AR-SGD, 32 nodes"}
    data = load(suite, "toy", "table2", "smoke", finished)
    assert "fitted to, no prediction" not in metrics_table.prepare(data).note
    series = tuple(replace(each, time=each.time and replace(each.time, fitted=True)) for each in data.series)
    table = metrics_table.prepare(replace(data, series=series))
    assert "* fitted to, no prediction" in table.note
    assert any(text.endswith("*") for row in table.rows for text in texts(row))


def test_an_axis_of_epochs_that_are_times_says_so(suite: Suite, finished: Path):
    data = load(suite, "toy", "fig6", "smoke", finished)
    chosen = options_of("render", "training_curves")(metrics=["train_loss", "val_top1"], axis="Time (epochs)")
    panels = training_curves.prepare(replace(data, item=data.item.model_copy(update={"options": chosen})))
    assert {panel.x_axis for panel in panels.panels} == {"Time (epochs)"}


def test_periods_are_drawn_without_any_run(suite: Suite, tmp_path: Path):
    panels = period_schedule.prepare(load(suite, "toy", "fig7", "smoke", tmp_path))
    rates, periods = panels.panels
    constant, qsr = periods.lines
    assert len(rates.lines) == 1  # both series have the same
    assert (constant.label, qsr.label) == ("Local SGD, H = 4: 25.0 %", "QSR, H_base = 4: 19.5 %")
    rounds = np.diff(qsr.x) * 22 / qsr.y[:-1]  # of 22 steps an epoch, between two changes of H
    assert rounds.sum() == pytest.approx(129)
    assert (np.diff(qsr.y[:-1]) > 0).all()
    assert (qsr.x[0], qsr.x[-1]) == (0, 30)


def test_tex_is_a_float_with_caption_label_and_note():
    headings = (Heading("Method", numbers=False), Heading("here", group="Share (%)"), Heading("published", "h"))
    row = Cell("A & B_c"), Cell("-1.5 ± 2", best=True, mark="†"), Cell("3 ~ 4\\")
    table = Table("T_1", headings, (row,), ({"a": 1},), "note · 5%", "What it shows.")
    text = tex(table, COLUMN, "qsr-t")
    assert r"\caption{T\_1. What it shows.}" in text
    assert r"\label{tab:qsr-t}" in text
    assert r"  & \multicolumn{2}{c}{Share (\%)} &  & \\" in text.replace("   &", "  &")
    assert r"\cmidrule(lr){2-3}" in text
    assert r"Method & \multicolumn{2}{c}{here} & \multicolumn{2}{c}{published (h)} \\" in text
    number = r"\textbf{$-$1} & \textbf{.5 $\pm$ 2}\textsuperscript{\dag{}}"
    assert rf"A \& B\_c & {number} & 3 & \ \textasciitilde{{}} 4\textbackslash{{}} \\" in text
    assert r"\footnotesize note $\cdot$ 5\%}" in text
    assert r"\begin{table*}" in tex(table, TEXT, "qsr-t")


def test_a_wide_table_gets_broken_headings_then_smaller_text():
    headings = Heading("Method", numbers=False), *(Heading("here", group="Accuracy at the end (%)") for _ in range(4))
    row = Cell("Local SGD"), *(Cell("91.23 ± 0.45") for _ in range(4))
    table = Table("T", headings, (row,), ({"a": 1},), "")
    found = {width: tex(table, width, "").splitlines() for width in (TEXT, COLUMN, 1.0)}
    sizes = [next(line for line in lines if line in (r"\small", r"\scriptsize")) for lines in found.values()]
    assert sizes == [r"\small", r"\scriptsize", r"\scriptsize"]
    narrow = Table("T", headings[:2], (row[:2],), ({"a": 1},), "")
    assert r" & \multicolumn{2}{c}{Accuracy at the end (\%)} \\" in tex(narrow, COLUMN, "").replace("  ", " ")
    broken = tex(narrow, 1.0, "").splitlines()
    assert [line.partition("{c}")[2] for line in broken if r"\multicolumn" in line] == [
        r"{Accuracy at} \\", r"{the end (\%)} \\", r"{here} \\",
    ]  # fmt: skip


TEXTS = {
    "cost $5 and $10": (r"cost \$5 and \$10", r"cost \$5 and \$10"),
    r"a $\foo_{$ b": (r"a \$\\foo\_{\$ b", r"a \$\textbackslash{}foo\_\{\$ b"),
    "$x^{2$": (r"\$x^{2\$", r"\$x\textasciicircum{}\{2\$"),
    "a|b": (r"a\|b", r"a\textbar{}b"),
    r"a\|b": (r"a\\\|b", r"a\textbackslash{}\textbar{}b"),
    "<b>1 < 2</b>": (r"\<b>1 < 2\</b>", r"\textless{}b\textgreater{}1 \textless{} 2\textless{}/b\textgreater{}"),
    "_one_ of val_top1": (r"\_one\_ of val_top1", r"\_one\_ of val\_top1"),
    "two\nlines": ("two lines", "two lines"),
    "**bold** `code` [a](b)": (r"\*\*bold\*\* \`code\` [a\](b)", "**bold** `code` [a](b)"),
}
"""Texts of a configuration, as Markdown and as LaTeX."""


@pytest.mark.parametrize("text", TEXTS)
def test_a_table_shows_its_texts_as_they_are(text: str):
    as_markdown, as_tex = TEXTS[text]
    table = Table(text, (Heading(text, numbers=False),), ((Cell(text),),), ({"a": text},), text)
    title, _, heading, _, row, _, note = table.markdown().splitlines()
    assert (title, note) == (f"**{as_markdown}**", as_markdown)
    assert heading == row == f"| {as_markdown} |"
    lines = tex(table, TEXT, "").splitlines()
    assert lines.count(rf"{as_tex} \\") == 2
    assert rf"\caption{{{as_tex}.}}" in lines


def test_a_figure_shows_labels_as_they_are(suite: Suite, finished: Path):
    data = load(suite, "toy", "fig5", "smoke", finished)
    labels = [text for text in TEXTS if not text.startswith("_")][: len(data.series)]
    series = tuple(replace(each, label=label) for each, label in zip(data.series, labels, strict=True))
    panels = period_and_accuracy.prepare(replace(data, series=series))
    with look():
        figure = period_and_accuracy.draw(replace(panels, setting=labels[1]), COLUMN)
        assert encode(figure)
    drawn = figure.legends[0].get_texts()
    assert [text.get_text() for text in drawn] == labels
    assert not any(text.get_parse_math() for text in [*drawn, figure._supxlabel])


def test_an_algorithm_has_one_style_everywhere_which_its_options_declare(suite: Suite):
    styles = {name: style_of_algorithm(name) for name in option_names("sync")}
    declared = {name: look for name in styles if (look := options_of("sync", name).look)}
    assert len({styles[name] for name in declared}) == len(declared)
    assert all(styles[name].marker == look.marker for name, look in declared.items())
    smoke = {run.series: style_of(run) for run in suite.runs("toy", "smoke")}
    paper = {run.series: style_of(run) for run in suite.runs("toy", "paper")}
    assert smoke == paper
    assert len({style.color for style in smoke.values()}) == 4
    assert len({(style.marker, style.dash) for style in smoke.values()}) == 4  # readable without colour


def test_equal_algorithms_in_one_item_still_differ(suite: Suite):
    style = style_of(suite.runs("toy", "smoke")[0])
    pair, few, many = distinct([style] * 2), distinct([style] * 4), distinct([style] * 11)
    assert pair[0] == few[0] == style
    assert len({one.color for one in pair}) == 2
    assert len({one.color for one in few}) == 4
    sgp = style_of(suite.runs("toy", "smoke", "vit", "sgp")[0])
    *shades, other = distinct([style] * 3 + [sgp])
    assert other.color == sgp.color
    lightness = [sum(bytes.fromhex(one.color[1:])) for one in shades]
    assert lightness == sorted(set(lightness), reverse=True)  # from light to dark, in their order
    for styles in (pair, few, many, shades):
        assert len({(one.color, one.dash) for one in styles}) == len(styles)  # also where no markers are drawn
        assert len({one.marker for one in styles}) == min(10, len(styles))
    assert len({one.dash for one in few}) == 4  # also without colour
    assert len({one.color for one in many}) == 7


@pytest.fixture
def sweep(papers: Suite, tmp_path: Path) -> tuple[Suite, Path]:
    """Results of the sweep over tau in figure 3 of the SlowMo paper at paper scale; that over 24 has not run."""
    for run in papers.item_runs("slowmo", "fig3_imagenet", "paper"):
        if not run.series.endswith("tau24"):
            tau = getattr(run.sync, "period", None)
            synthetic.write_short_run(run, tmp_path, 75.0 + (tau.h if tau else 0) / 100 + run.seed / 10)
    return papers, tmp_path


def test_a_metric_against_an_option_is_a_line_in_its_order(sweep: tuple[Suite, Path]):
    panels = metric_against_option.prepare(load(sweep[0], "slowmo", "fig3_imagenet", "paper", sweep[1]))
    accuracy, time = panels.panels
    *swept, fixed = accuracy.lines
    assert [point.x for point in accuracy.lines] == [12, 24, 48, 96, None]
    assert [point.mean for point in swept] == pytest.approx([75.17, None, 75.53, 76.01])
    assert swept[0].std == pytest.approx(0.1 / 2**0.5)
    assert [point.published for point in swept] == [None, None, Level(75.73), None]
    assert swept[1].label == "SGP + SlowMo (tau=24) (not run)"
    assert (fixed.label, fixed.mean, fixed.published) == ("SGP", pytest.approx(75.05), Level(75.15))
    assert (accuracy.y_axis, time.y_axis) == ("Best validation top-1 accuracy (%)", "Time per step (s)")
    assert accuracy.x_axis == time.x_axis == "tau (steps)"
    rows = [row for row in csv.DictReader(io.StringIO(points_csv(panels))) if row["panel"] == "a"]
    assert [(row["x"], row["shows"]) for row in rows if row["series"] == "SGP"] == [("", "mean"), ("", "published")]
    assert [row["x"] for row in rows if row["shows"] == "mean"] == ["12.0", "48.0", "96.0", ""]
    assert {row["interval"] for row in rows if row["shows"] == "mean"} == {"± 1 standard deviation"}
    figure = metric_against_option.draw(panels, TEXT)
    assert figure.axes[0].get_xscale() == "log"
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["12", "24", "48", "96"]
    other = load(sweep[0], "slowmo", "fig3_imagenet", "paper", sweep[1])
    item = other.item.model_copy(update={"options": other.options.model_copy(update={"option": "sync.tau"})})
    with pytest.raises(ValueError, match=r"fig3_imagenet: option: found sync.tau"):
        metric_against_option.prepare(replace(other, item=item))


@pytest.mark.parametrize(
    ("modules", "absent"),
    [
        ("resync.papers.render.accuracy_curves", ("torch", "wandb", "matplotlib.pyplot", "scipy.stats")),
        ("resync.papers.report, resync.papers.audit", ("torch", "wandb", "matplotlib.pyplot")),
        ("resync.runs.results.status", ("torch", "wandb", "matplotlib", "pandas")),
        ("resync.runs.results.state", ("torch", "pandas", "numpy", "pyarrow")),
        ("resync.papers.plan", ("torch", "numpy")),
        ("resync.base.processes.warm_client", ("importlib.abc", "pathlib", "subprocess", "resync.runs.run")),
    ],
)
def test_what_shows_results_imports_no_more_than_it_needs(modules: str, absent: tuple[str, ...]):
    code = f"import sys, {modules}; print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for module in absent:
        assert f"'{module}'" not in loaded


def test_many_lines_are_named_at_their_ends_in_the_colours_of_their_families(papers: Suite, tmp_path: Path):
    for run in papers.item_runs("outer_optimizers", "methods", "smoke"):
        synthetic.write_short_run(run, tmp_path, 75.0)
    data = load(papers, "outer_optimizers", "methods", "smoke", tmp_path)
    figure = cost_curves.draw(cost_curves.prepare(data), TEXT)
    assert not figure.legends
    named = {text.get_text() for text in figure.axes[-1].texts} - {""}
    assert len(named) == len(data.series) > 6
    beside = [line for line in figure.axes[-1].get_lines() if line.get_transform() == figure.axes[-1].transAxes]
    assert len(beside) == len(data.series)  # the key to the panels that have no labels
    hues = {label: max("rgb", key=dict(zip("rgb", to_rgb(series.style.color), strict=True)).get)
            for series in data.series for label in [series.label]}  # fmt: skip
    assert hues["NoLoCo (H=20)"] == "g"
    assert hues["DiLoCo (8 workers, H=20)"] == hues["SlowMo (H=20)"] == "r"
    assert hues["Local AdamW (8 workers, H=20)"] == "b"
    assert len({series.style.color for series in data.series}) == len(data.series)


def test_a_line_that_another_covers_is_wide_below_it_and_short_lines_are_not_squeezed():
    x, y = np.arange(3.0), np.array([1.0, 2.0, 3.0])
    styles = distinct([style_of_algorithm("sgp"), style_of_algorithm("allreduce"), style_of_algorithm("dpsgd")])
    values = ((x, y), (x, y + 0.001), (20 * x, y - 0.5))
    lines = [
        Line(f"{at}", style, *pair, *(pair[1],) * 2)
        for at, (style, pair) in enumerate(zip(styles, values, strict=True))
    ]
    axes = panels.draw(Panels([Panel("Epoch", "Loss", lines, (0.0, 4.0))], ""), TEXT).axes[0]
    assert [line.get_linewidth() == BELOW["linewidth"] for line in axes.get_lines()] == [True, False, False]
    assert axes.get_xscale() == "symlog"
    *_, darkest, _ = distinct([style_of_algorithm("slowmo")] * 4 + styles[:1])
    assert to_rgb(darkest.color)[2] > 0  # with black it would be brown


@pytest.mark.parametrize(("x", "whole"), [((2.0, 4.0), True), ((2.0, 3.5), False)])
def test_between_whole_epochs_there_is_no_tick(x: tuple[float, float], whole: bool):
    y = np.array([1.0, 2.0])
    line = Line("SGP", style_of_algorithm("sgp"), np.array(x), y, y, y)
    axes = panels.draw(Panels([Panel("Epoch", "Loss", [line], (0.0, 4.0))], ""), TEXT).axes[0]
    assert all(tick == round(tick) for tick in axes.get_xticks()) == whole


@pytest.mark.parametrize(
    ("places", "gap", "found"),
    [([0.5, 0.2], 0.1, [0.5, 0.2]), ([0.5, 0.5], 0.1, [0.6, 0.5]), ([1.0, 1.0], 0.5, [0.5, 1.0][::-1])],
)
def test_labels_are_moved_only_where_they_would_meet(places, gap, found):
    assert sorted(spread(places, gap)) == pytest.approx(sorted(found))


def test_loss_against_costs_ends_at_the_bytes_of_the_run_and_the_time_of_the_model(papers: Suite, tmp_path: Path):
    """Of a run that has sent half of the planned bytes, as one that ends early, half the time of communication."""
    runs = papers.item_runs("outer_optimizers", "methods", "smoke")
    for index, run in enumerate(runs[:2]):
        expected = synthetic.planned(run)
        part = {"bytes_sent": expected.bytes_per_worker // 2, "volume_percent": expected.volume_percent / 2}
        synthetic.write_short_run(run, tmp_path, 75.0, **{name: index * value for name, value in part.items()})
    panels = cost_curves.prepare(load(papers, "outer_optimizers", "methods", "smoke", tmp_path))
    assert [panel.x_axis for panel in panels.panels] == ["Sent by a worker (MB)", "Modelled time (ms)", "Step"]
    for index, run in enumerate(runs[:2]):
        sent, times, steps = (panel.lines[index] for panel in panels.panels)
        assert steps.x.tolist() == [0, run.total_steps]
        assert sent.x.tolist() == [0, index * synthetic.planned(run).bytes_per_worker // 2 / 1e6]
        assert sent.y.tolist() == times.y.tolist() == [1.0, 1.0]
        size = read_run(tmp_path / run.directory).summary["parameters"]
        model = modelled_time(papers, run, size)
        assert model
        clock = model.clock
        assert clock.communication > 0
        # Without bytes sent there is no time of communication.
        share = 0.5 if index else 0.0
        assert times.x.tolist() == pytest.approx([0, 1e3 * (clock.total - (1 - share) * clock.communication)])
    assert len(panels.panels[1].lines) == 2  # the others have no run that tells the size of the model
    assert len(cost_curves.draw(panels, TEXT).axes) == 3


def test_a_figure_says_what_it_was_drawn_from(suite: Suite, finished: Path, tmp_path: Path, capsys):
    files = {path.suffix: path for path in render(suite, "toy", "fig5", "smoke", finished, tmp_path)}
    said = {read_origin(files[suffix].read_bytes()) for suffix in (".png", ".pdf", ".svg")}
    [origin] = said
    runs = suite.item_runs("toy", "fig5", "smoke")
    assert (origin.item, origin.scale) == ("toy/fig5", "smoke")
    assert origin.data == hashlib.sha256(files[".csv"].read_bytes()).hexdigest()
    assert origin.runs == tuple(run.hash for run in runs)
    assert origin.commits == ("0123456789",)
    assert main(["show", str(files[".svg"]), "--configs", str(CONFIGS)]) == 0
    shown = capsys.readouterr().out
    assert f"{origin.data}, as {files['.csv']}\n" in shown
    assert f"run {runs[0].hash}: {runs[0].id}\n" in shown
    before = files[".svg"].read_text()
    (tmp_path / "other.svg").write_text(before.replace(origin.data, "0" * 64))
    assert difference(files[".svg"], tmp_path / "other.svg") == ""
    files[".csv"].write_text("changed")
    assert main(["show", str(files[".png"]), "--configs", str(CONFIGS)]) == 0
    assert "not that of" in capsys.readouterr().out
    (tmp_path / "bare.png").write_bytes(b"")
    assert main(["show", str(tmp_path / "bare.png")]) == 2

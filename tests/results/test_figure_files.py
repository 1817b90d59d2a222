"""The files of figures and tables: the data behind a figure, widths, and LaTeX that compiles."""

import csv
import io
import math
import re
import shutil
import subprocess
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import synthetic
from machine import program
from matplotlib.figure import Figure

from resync.papers.paper import Suite
from resync.papers.render import accuracy_curves, period_and_accuracy, slow_sde
from resync.papers.render.columns import metric_table
from resync.papers.render.item import load, render
from resync.papers.render.lines import ignore_truncated_rounds
from resync.papers.render.points import Level, levels_note, points_csv
from resync.papers.render.style import COLUMN, SMALL, TEXT, WIDTHS, encode, look
from resync.papers.render.table import Table
from resync.papers.render.table_tex import escaped, tex
from resync.papers.render.text import balanced, drawn, width_of, wrapped
from resync.papers.report import curves
from resync.runs.results.runs import state_of

ROOT = Path(__file__).parents[2]
LATEX = r"""\documentclass[twocolumn]{article}
\usepackage[textwidth=6.75in,columnsep=0.25in]{geometry}
\usepackage{booktabs}
\begin{document}
%s
\end{document}
"""


def rows_of(numbers) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(points_csv(numbers))))


def drawn_lines(figure: Figure) -> dict[str, tuple[set[tuple[float, float]], float]]:
    """The points of the labelled lines of each panel by their letter, and the lower end of its vertical axis."""
    found: dict[str, set] = defaultdict(set)
    for letter, axes in zip("abcd", figure.axes, strict=False):
        for line in axes.get_lines():
            if not line.get_label().startswith("_") or line.get_drawstyle() != "default":
                found[letter] |= {(x, y) for x, y in zip(*line.get_data(), strict=True) if math.isfinite(y)}
    return {letter: (found[letter], axes.get_ylim()[0]) for letter, axes in zip("abcd", figure.axes, strict=False)}


@pytest.mark.parametrize(("item", "kind"), [("fig5", period_and_accuracy), ("fig6", accuracy_curves)])
def test_the_csv_of_a_figure_holds_every_point_that_is_drawn(item: str, kind, suite: Suite, finished: Path):
    numbers = kind.prepare(load(suite, "toy", item, "smoke", finished))
    with look():
        lines = drawn_lines(kind.draw(numbers, TEXT))
    rows = rows_of(numbers)
    assert set(lines) == {row["panel"] for row in rows} == {"a", "b"}
    for panel, (points, low) in lines.items():
        listed = {(float(row["x"]), float(row["y"])) for row in rows if row["panel"] == panel and row["x"]}
        assert points == {(x, y) for x, y in listed if y >= low}


def test_the_csv_says_what_its_points_are(suite: Suite, results: Path):
    for run in suite.runs("toy", "smoke", "vit", "h4")[1:]:
        shutil.rmtree(results / run.directory)
    run = suite.runs("toy", "smoke", "vit", "h4")[1]
    synthetic.write_run(run, results, diverged_at=400)
    rows = rows_of(period_and_accuracy.prepare(load(suite, "toy", "fig5", "smoke", results)))
    by_series = {row["series"]: row for row in rows if row["panel"] == "b" and row["shows"] != "diverged seed"}
    qsr = by_series["QSR, H_base = 4"]
    assert (qsr["shows"], qsr["n"], qsr["seed"], qsr["interval"]) == ("mean", "3", "", "minimum to maximum")
    assert float(qsr["low"]) < float(qsr["y"]) < float(qsr["high"])
    assert (qsr["x_axis"], qsr["y_axis"]) == ("Epoch", "Validation top-1 accuracy (%)")
    alone = by_series["Local SGD, H = 4 (1 of 3 diverged, 1 of 3 not run)"]
    assert (alone["shows"], alone["n"], alone["seed"], alone["low"]) == ("seed", "1", "0", "")
    assert {row["seed"] for row in rows if row["shows"] == "diverged seed"} == {"1"}


def test_what_this_project_measured_is_never_called_published(papers: Suite, tmp_path: Path):
    """nanoGPT's script run by us: in the note, the CSV and the charts of pages."""
    measured = [
        value
        for paper in papers.papers.values()
        for value in paper.published
        if value.status == "measured" and value.value
    ]
    assert measured
    levels = [Level.of(value, value.scale) for value in measured]
    assert {level.shows for level in levels if level} == {"measured by this project"}
    assert levels_note(levels, "dotted") == "dash-dotted: measured by this project"
    assert {level.dash for level in levels if level} == {"-."} != {Level(1.0).dash}
    states = {}
    for run in papers.item_runs("outer_optimizers", "nanogpt_curves", "mini"):
        synthetic.write_short_run(run, tmp_path, 80.0)
        states[run.paper, run.experiment, run.series] = [state_of(run, tmp_path)]
    content = SimpleNamespace(suite=papers, scale="mini", series=states)
    words = {word for line in curves.lines(content, states) for _, word in line["published"].values()}
    assert "measured by this project" in words


def test_published_values_are_levels_in_curves_and_points_in_the_csv(papers: Suite, tmp_path: Path):
    """One that was only recalled is a pale level."""
    for run in papers.item_runs("qsr", "fig5", "paper"):
        synthetic.write_short_run(run, tmp_path, 80.0 + run.seed / 10)
    data = load(papers, "qsr", "fig5", "paper", tmp_path)
    recalled = [each.model_copy(update={"status": "unverified"}) for each in data.published if each.value == 79.32]
    others = [each for each in data.published if each.value != 79.32]
    for published, known in ((data.published, True), ((*recalled, *others), False)):
        numbers = period_and_accuracy.prepare(replace(data, published=tuple(published)))
        assert [line.published for line in numbers.panels[1].lines] == [
            Level(79.32, "verified" if known else "unverified"),
            Level(80.98),
        ]
        levels = [row for row in rows_of(numbers) if row["shows"].startswith("published")]
        assert [(row["panel"], row["x"], row["y"]) for row in levels] == [("b", "", "79.32"), ("b", "", "80.98")]
        assert ("pale dotted: published, unverified" in numbers.setting) is not known
        with look():
            lower = period_and_accuracy.draw(numbers, COLUMN).axes[1]
        dotted = {line.get_ydata()[0]: line.get_alpha() for line in lower.get_lines() if line.get_linestyle() == ":"}
        assert (dotted[79.32] is None, dotted[80.98]) == (known, None)


def test_figures_without_runs_have_their_data_too(papers: Suite, tmp_path: Path):
    for item in ("averaging_error", "time_per_iteration"):
        pdf, png, _, table = render(papers, "sgp", item, "smoke", tmp_path, tmp_path)
        assert pdf.read_bytes()[:5] == b"%PDF-"
        assert len(png.read_bytes()) > 20_000
        rows = list(csv.DictReader(table.open(newline="")))
        published = "published" if item == "averaging_error" else "published, verified"
        assert {row["shows"] for row in rows} >= {"computed", published}
    panels = slow_sde.DriftAndDiffusion({}, slow_sde.Diffusion(0.5, *2 * [np.ones(len(slow_sde.DIFFUSION_PERIODS))]))
    assert [point.x for point in panels.points()] == [None, *slow_sde.DIFFUSION_PERIODS]


@pytest.mark.parametrize("width", WIDTHS.values())
def test_a_figure_is_as_wide_as_its_item_says_and_its_text_is_readable(width: float, suite: Suite, finished: Path):
    data = load(suite, "toy", "fig6", "smoke", finished)
    assert (data.width, load(suite, "toy", "fig5", "smoke", finished).width) == (TEXT, COLUMN)
    assert replace(data, item=data.item.model_copy(update={"width": "column"})).width == COLUMN
    numbers = accuracy_curves.prepare(data)
    with look():
        figure = accuracy_curves.draw(numbers, width)
        encode(figure)
    assert figure.get_figwidth() == width
    texts = [artist for artist in figure.findobj(lambda artist: hasattr(artist, "get_fontsize")) if artist.get_text()]
    assert min(text.get_fontsize() for text in texts) >= SMALL
    drawn_within = figure.get_tightbbox()  # in inches
    assert min(drawn_within.x0, drawn_within.y0) > -0.01
    assert drawn_within.x1 < width + 0.01
    assert drawn_within.y1 < figure.get_figheight() + 0.01


def tables(suite: Suite, results: Path) -> dict[str, tuple[Table, float]]:
    """Every table of the papers at every scale that it exists at, with its width in inches."""
    found = {}
    for paper, scale in ((paper, scale) for paper in suite.papers for scale in suite.scales):
        for item in (table.id for table in suite.papers[paper].tables):
            if suite.papers[paper].has_item(item, scale):
                data = load(suite, paper, item, scale, results)
                kind = __import__(f"resync.papers.render.{data.item.kind}", fromlist=["prepare"])
                found[f"{scale}-{paper}-{item}"] = kind.prepare(data), data.width
    return found


@pytest.fixture(scope="module")
def every_table(papers: Suite, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Table, float]]:
    """Tables of the papers: those of two with made-up results at paper scale."""
    results = tmp_path_factory.mktemp("tables")
    for paper, item in (("qsr", "table1b"), ("slowmo", "table1_cifar10")):
        for run in papers.item_runs(paper, item, "paper"):
            synthetic.write_short_run(run, results, 75.0 + run.seed)
    return tables(papers, results)


def test_markdown_latex_and_csv_of_a_table_agree(suite: Suite, finished: Path):
    table = metric_table(load(suite, "toy", "table1", "smoke", finished), ("val_top1", "volume_percent"), 2)
    records = list(csv.DictReader(io.StringIO(table.csv())))
    lines = [line for line in table.markdown().splitlines() if line.startswith("| ")][2:]
    plain = tex(table, TEXT, "t").replace("$\\pm$", "±").replace("\\%", "%")
    body = plain[plain.index(r"\midrule") : plain.index(r"\bottomrule")].splitlines()[1:]
    assert len(records) == len(lines) == len(body) == 4
    for record, line, row in zip(records, lines, body, strict=True):
        value = f"{float(record['val_top1_mean']):.2f} ± {float(record['val_top1_std']):.2f}"
        assert value in line.replace("*", "")
        joined = re.sub(r"\\textbf\{([^}]*)\}", r"\1", row).replace(" & .", ".")
        assert value in joined
        assert record["label"].split(",")[0] in line
        assert f"{float(record['volume_percent_mean']):.2f}" in joined


def test_every_table_is_latex_that_fits(every_table: dict[str, tuple[Table, float]], tmp_path: Path):
    engine = program("pdflatex", "texlive-latex-recommended")
    parts = []
    for name, (table, width) in every_table.items():
        text = tex(table, width, name)
        [body] = re.findall(r"\\(?:small|footnotesize|scriptsize)\n.*?\\end\{tabular\}", text, re.DOTALL)
        parts.append(rf"\setbox0=\hbox{{{body}}}\typeout{{WIDTH {name} \the\wd0}}" + "\n" + text + r"\clearpage")
    (tmp_path / "all.tex").write_text(LATEX % "\n".join(parts))
    command = [engine, "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-2000:]
    found = dict(re.findall(r"^WIDTH (\S+) ([\d.]+)pt$", done.stdout, re.MULTILINE))
    widths = {name: float(points) / 72.27 for name, points in found.items()}
    assert set(widths) == set(every_table)
    assert not [(name, width) for name, width in widths.items() if width > every_table[name][1]]


def test_a_round_that_is_cut_is_no_change_of_the_period():
    for lengths, shown in (
        ([4, 4, 4, 2], [4, 4, 4, 4]),
        ([4, 4, 1, 200], [4, 4, 4, 200]),
        ([4, 1, 1, 1, 8], [4, 1, 1, 1, 8]),
        ([1, 1, 4, 5, 5], [1, 1, 4, 5, 5]),
        ([], []),
    ):
        assert ignore_truncated_rounds(np.array(lengths, float), np.arange(len(lengths), dtype=float)).tolist() == shown


def test_symbols_in_labels_are_set_as_mathematics():
    assert drawn("QSR (H_base=4)") == r"QSR ($H_{\mathrm{base}} = 4$)"
    assert drawn("SGP + SlowMo (tau=12), $5") == r"SGP + SlowMo ($\tau = 12$), \$5"
    assert drawn("Both (K=2, H=1/5 of it)") == "Both ($K = 2$, $H = 1/5$ of it)"
    for plain in ("Method H", "cost $5 and $10", "alphabet", "VGG-16"):
        assert drawn(plain) == plain
    assert escaped("QSR (H_base=4) & val_top1") == r"QSR ($H_{\mathrm{base}} = 4$) \& val\_top1"


def test_lines_of_a_footnote_are_about_equally_long():
    text = "mini scale: cnn on images, 8 workers, 1,000 steps · mean over 5 seeds, band: minimum to maximum now"
    width = width_of(text.removesuffix(" now"), 7)
    assert wrapped(text, width, 7)[1] == "now"
    lines = balanced(text, width, 7)
    assert " ".join(lines) == text
    first, second = (width_of(line, 7) for line in lines)
    assert 0.8 < first / second < 1.25
    assert balanced("one line", width, 7) == ["one line"]
    assert balanced("unbreakably " * 2 + "long", 10, 7) == ["unbreakably", "unbreakably", "long"]

"""Verbs on the results of runs."""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from resync.base.errors import UserError
from resync.base.settings.errors import not_among
from resync.base.text_tables import json_text
from resync.runs.results.state import Status
from resync.runs.run.run import SCALES
from resync.tools.cli.declare import (
    ANY_PAPER,
    CONFIGS,
    FIGURES,
    JSON,
    OF_PAPER,
    PAPER,
    PILOTS,
    RESULTS,
    SCALE,
    declared_runs,
    flag,
    on_results,
    suite_of,
    verb,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from resync.runs.results.status import Progress


def _folder(options: argparse.Namespace) -> Path:
    """The folder of the results. Raises ValueError if it is not there, as after a typing error."""
    folder: Path = options.results
    if not folder.is_dir():
        raise UserError(f"--results {folder}: no such folder")
    return folder


def _probability(text: str) -> float:
    value = float(text)
    if not 0.5 <= value < 1:
        raise argparse.ArgumentTypeError(f"found {text}, allowed: at least 0.5 and less than 1")
    return value


@verb(
    "show the progress of a scale's runs, and why some failed",
    CONFIGS, RESULTS, ANY_PAPER,
    flag("--scale", choices=SCALES, help="scale of the runs (default: the one at which a run was trained last)"),
    flag("--experiment", nargs="+", help="only these experiments"),
    flag("--state", nargs="+", choices=get_args(Status), metavar="STATE", help="only runs in one of these states "
         f"(default: all but not run): {', '.join(get_args(Status))}"),
    flag("--by", choices=("series", "run"), default="series", help="what a line is about (default: %(default)s)"),
    flag("--watch", nargs="?", type=float, const=2.0, metavar="SECONDS", help="repeat it every so many "
         "seconds (default: %(const)s) until Ctrl-C"),
    PILOTS,
    JSON,
    flag(
        "--problems",
        action="store_true",
        help="list only runs that are damaged, stale, failed or stopped, one per line, and exit with 1 if there is one",
    ),
)  # fmt: skip
@on_results
def _status(options: argparse.Namespace) -> int:
    from resync.runs.results.status import PROBLEMS, counted, heading, lines_of, newest_scale, progress, table

    suite, results = suite_of(options), _folder(options)
    scale = options.scale or newest_scale(results)
    runs = declared_runs(suite, options, scale)
    # Text leaves out what has not begun, which its last line counts: it would bury the rest.
    usual = [state for state in get_args(Status) if options.json or state != "not run"]
    wanted = set(PROBLEMS if options.problems else options.state or usual)
    by: Literal["run", "series"] = "run" if options.problems else options.by

    def look() -> tuple[list[Progress], str]:
        states = [progress(run, results) for run in runs]
        return [state for state in states if state.status in wanted], f"{scale} scale, {counted(states)}"

    if options.watch is not None:
        from resync.tools.progress import colored, watch

        def picture() -> tuple[RenderableType, str]:
            listed, last = look()
            return colored(heading(by), lines_of(listed, by), last), last

        watch(picture, options.watch)
        return 0
    listed, last = look()
    print(json_text([asdict(state) for state in listed]) if options.json else table(listed, by, last))
    return 1 if options.problems and listed else 0


@verb("export a paper's results as one table", CONFIGS, RESULTS, PAPER, SCALE)
def _collect(options: argparse.Namespace) -> None:
    from resync.runs.results.collect import collect

    runs, stem = suite_of(options).runs(options.paper, options.scale), Path(options.scale, options.paper, "collected")
    for line in collect(runs, _folder(options), options.results / stem).damaged:
        print(f"resync: warning: {line}", file=sys.stderr)


@verb(
    "draw a figure or table, or all of a paper",
    CONFIGS, RESULTS, FIGURES, OF_PAPER, SCALE,
)  # fmt: skip
@on_results
def _render(options: argparse.Namespace) -> None:
    from resync.papers.render.item import render

    suite = suite_of(options)
    for item in [options.item] if options.item else suite.items(options.paper, options.scale):
        for path in render(suite, options.paper, item, options.scale, options.results, options.figures):
            print(path)


@verb(
    "compare results with the published values and claims",
    CONFIGS, RESULTS, SCALE,
    flag("--gather", action="store_true", help="combine the existing audits of all papers instead of making new ones"),
    flag("--check", action="store_true", help="exit with 1 if a line of the audit fails or a run is damaged"),
    flag("--json", action="store_true", help="print JSON: all of audit.json, or the entries with these ids"),
    flag("ids", nargs="*", metavar="PAPER or ID", help="a paper, whose audit is written (default: all papers), or "
         "claims and published numbers, `paper/id` or `id`: their verdicts are printed and no file is written"),
)  # fmt: skip
def _audit(options: argparse.Namespace) -> int:
    options.paper = None
    if len(options.ids) == 1 and (options.configs / options.ids[0] / "paper.yaml").is_file():
        options.paper, options.ids = options.ids[0], []
    return _audited(options) or 0


@on_results
def _audited(options: argparse.Namespace) -> int:
    from resync.papers.audit import answer, audit, find, gather, sentence, to_json, write
    from resync.papers.audit.verdicts import FAILURES

    suite, folder = suite_of(options), _folder(options) / options.scale
    if options.gather and (options.paper or options.ids):
        raise UserError(f"--gather: has no effect beside {options.paper or options.ids[0]}, allowed: alone")
    if options.ids:
        named = list(dict.fromkeys(paper for paper, slash, _ in (name.partition("/") for name in options.ids) if slash))
        for paper in named:
            if paper not in suite.papers:
                raise UserError(f"paper: {not_among(paper, suite.papers)}")
        papers = named if all("/" in name for name in options.ids) else list(suite.papers)
        lines = find(audit(suite, options.scale, options.results, papers), options.ids)
        print(answer(lines, options.json))
        return 1 if options.check and any(line.verdict in FAILURES for line in lines.values()) else 0
    for paper in [options.paper] if options.paper else [] if options.gather else suite.papers:
        result = audit(suite, options.scale, options.results, [paper])
        write(result, folder / paper)
    if not options.paper:
        result = gather(suite, options.scale, options.results)
        write(result, folder)
    print(to_json(result).rstrip() if options.json else sentence(result))
    return 1 if options.check and result.failed else 0


@verb(
    "compute from pilot runs how many seeds the claims need at a scale",
    CONFIGS, RESULTS, ANY_PAPER, SCALE, JSON,
    flag("--power", type=_probability, default=0.8, help="desired probability of a verdict (default: %(default)s)"),
)  # fmt: skip
@on_results
def _power(options: argparse.Namespace) -> None:
    from resync.papers.audit.power import powers, table

    suite = suite_of(options)
    rows = powers(suite, options.scale, _folder(options), suite.papers, options.power)
    if options.item:
        of_item = {
            f"{options.paper}/{claim.id}" for claim in suite.papers[options.paper].claims if claim.item == options.item
        }
        if not of_item:
            raise UserError(f"{options.paper}/{options.item}: no claim is on a figure or table of this name")
        rows = [row for row in rows if row.claim in of_item]
    print(json_text([asdict(row) for row in rows]) if options.json else table(rows, options.power))


@verb(
    "write a third-party log as the results of a declared run",
    CONFIGS, RESULTS,
    flag("--run", required=True, help="id of the declared run (`resync list PAPER --runs`), or paper/table for runs"),
    SCALE,
    flag(
        "--format",
        required=True,
        choices=("sgp", "fairseq", "csv", "wandb-csv", "wandb-api", "wandb-offline", "runs"),
        help="sgp: CSV logs of the original SGP code, one per rank; fairseq: the log of its Transformer; csv: a table; "
        "wandb-csv: charts exported from the web page of Weights & Biases; wandb-api: a run on its server "
        "(WANDB_API_KEY); wandb-offline: the log of a run that was never uploaded; runs: a published table of many "
        "runs, declared in the paper's logs.yaml",
    ),
    flag(
        "--columns", type=Path, help="YAML file that maps our columns to those of the log, except for sgp and fairseq"
    ),
    flag("--wandb-run", help="name of the run, if the charts show several"),
    flag("--replace", action="store_true", help="delete the contents of the run's folder first"),
    flag("source", nargs="+", help="files of the log; with `--format wandb-api`, entity/project/run"),
)  # fmt: skip
def _import(options: argparse.Namespace) -> None:
    from resync.papers.importer import import_log, import_runs
    from resync.runs.results.summary import NAME, read_summary

    if options.format == "runs":
        without_effect = {"--columns": options.columns, "--wandb-run": options.wandb_run}
        for name in (name for name, value in without_effect.items() if value is not None):
            raise UserError(f"{name}: has no effect on format runs, whose tables are declared")
        if len(options.source) > 1:
            raise UserError(f"{options.source[1]}: a second source, allowed: one with format runs")
        source = Path(options.source[0])
        print(import_runs(suite_of(options), options.run, source, options.results, options.replace))
        return
    folder = import_log(
        suite_of(options), options.run, options.scale, options.format, options.source, options.results,
        column_map=options.columns, wandb_run=options.wandb_run, replace=options.replace,
    )  # fmt: skip
    summary = read_summary(folder / NAME)
    notes = [f"diverged at step {summary['diverged']['step']}"] if summary["diverged"] else []
    for note in [*notes, *summary["imported"]["notes"]]:
        print(f"resync: {options.run}: {note}", file=sys.stderr)
    print(folder)


@verb("write the site of a scale: pages with all its results", CONFIGS, RESULTS, FIGURES, SCALE)
@on_results
def _report(options: argparse.Namespace) -> None:
    from resync.papers.report import report, write_index

    archive = getattr(options, "archive", None)
    figures = options.figures / archive.name if archive else options.figures
    suite = suite_of(options)
    page = report(suite, options.scale, _folder(options), figures)
    if archive:
        page = shutil.copytree(page.parent, archive.parent / options.scale / "site", dirs_exist_ok=True) / page.name
        write_index(suite, archive.parent, options.figures)
    print(page)

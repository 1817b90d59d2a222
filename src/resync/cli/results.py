"""Verbs on the results of runs."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from resync.cli.declare import CHECK, CONFIGS, FIGURES, JSON, ONE_PAPER, PAPER, RESULTS, SCALE, flag, suite_of, verb


def _folder(options: argparse.Namespace) -> Path:
    """The folder of the results. Raises ValueError if it is not there, as after a typing error."""
    folder: Path = options.results
    if not folder.is_dir():
        raise ValueError(f"--results {folder}: no such folder")
    return folder


@verb(
    "show the progress of a scale's runs, and why some failed",
    CONFIGS,
    RESULTS,
    ONE_PAPER,
    SCALE,
    JSON,
    flag(
        "--problems",
        action="store_true",
        help="list only runs that are damaged, stale, failed or stopped, and exit with 1 if there are any",
    ),
)
def _status(options: argparse.Namespace) -> int:
    from resync.results.status import PROBLEMS, progress, table

    suite = suite_of(options)
    papers = [options.paper] if options.paper else list(suite.papers)
    results = _folder(options)
    found = [progress(run, results) for paper in papers for run in suite.runs(paper, options.scale)]
    listed = [each for each in found if each.status in PROBLEMS] if options.problems else found
    print(json.dumps([asdict(each) for each in listed], indent=2) if options.json else table(found, listed))
    return 1 if options.problems and listed else 0


@verb("export a paper's results as one table", CONFIGS, RESULTS, PAPER, SCALE)
def _collect(options: argparse.Namespace) -> None:
    from resync.results.collect import collect

    runs, stem = suite_of(options).runs(options.paper, options.scale), Path(options.scale, options.paper, "collected")
    for line in collect(runs, _folder(options), options.results / stem).damaged:
        print(f"resync: warning: {line}", file=sys.stderr)


@verb(
    "draw one figure or table",
    CONFIGS,
    RESULTS,
    FIGURES,
    PAPER,
    SCALE,
    flag("--item", required=True, help="id of the figure or table"),
)
def _render(options: argparse.Namespace) -> None:
    from resync.render.item import render

    suite = suite_of(options)
    for path in render(suite, options.paper, options.item, options.scale, options.results, options.figures):
        print(path)


@verb(
    "compare results with the published values and claims",
    CONFIGS,
    RESULTS,
    ONE_PAPER,
    SCALE,
    flag("--gather", action="store_true", help="combine the existing audits of all papers, without new ones"),
    CHECK,
)
def _audit(options: argparse.Namespace) -> int:
    from resync.audit import audit, gather, sentence, write

    suite, folder = suite_of(options), _folder(options) / options.scale
    for paper in [options.paper] if options.paper else [] if options.gather else suite.papers:
        result = audit(suite, options.scale, options.results, [paper])
        write(result, folder / paper)
    if not options.paper:
        result = gather(suite, options.scale, options.results)
        write(result, folder)
    print(sentence(result))
    return 1 if options.check and result.failed else 0


@verb(
    "write a third-party log as the results of a declared run",
    CONFIGS,
    RESULTS,
    flag("--run", required=True, help="id of the declared run, as `resync expand` lists it; paper/table for runs"),
    SCALE,
    flag(
        "--format",
        required=True,
        choices=("sgp", "fairseq", "csv", "wandb-csv", "wandb-api", "runs"),
        help="sgp: CSV logs of the original SGP code, one per rank; fairseq: the log of its Transformer; csv: a table; "
        "wandb-csv: charts exported from the web page of Weights & Biases; wandb-api: a run on its server "
        "(WANDB_API_KEY); runs: a published table of many runs, declared in the paper's logs.yaml",
    ),
    flag(
        "--columns", type=Path, help="YAML file that maps our columns to those of the log, except for sgp and fairseq"
    ),
    flag("--wandb-run", help="name of the run, if the charts show several"),
    flag("--replace", action="store_true", help="delete the contents of the run's folder first"),
    flag("source", nargs="+", help="files of the log; for wandb-api entity/project/run"),
)
def _import(options: argparse.Namespace) -> None:
    from resync.importer import import_log, import_runs

    if options.format == "runs":
        without_effect = {"--columns": options.columns, "--wandb-run": options.wandb_run}
        for name in (name for name, value in without_effect.items() if value is not None):
            raise ValueError(f"{name}: has no effect on format runs, whose tables are declared")
        if len(options.source) > 1:
            raise ValueError(f"{options.source[1]}: a second source, allowed: one with format runs")
        source = Path(options.source[0])
        print(import_runs(suite_of(options), options.run, source, options.results, options.replace))
        return
    print(
        import_log(
            suite_of(options), options.run, options.scale, options.format, options.source, options.results,
            column_map=options.columns, wandb_run=options.wandb_run, replace=options.replace,
        )
    )  # fmt: skip


@verb("write the site of a scale: pages with all its results", CONFIGS, RESULTS, FIGURES, SCALE)
def _report(options: argparse.Namespace) -> None:
    from resync.report import report

    print(report(suite_of(options), options.scale, _folder(options), options.figures))

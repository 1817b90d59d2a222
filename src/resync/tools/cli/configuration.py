"""Verbs on the configuration: they train nothing and read no results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from resync.base.errors import UserError
from resync.base.files import write_text
from resync.base.processes.garbage import all_kept
from resync.base.text_tables import json_text
from resync.papers.paper import Suite
from resync.papers.plan import Cost, cost
from resync.papers.plan.network import ALL_REDUCES, LINKS, Network
from resync.papers.plan.rehearsed import Rates
from resync.runs.run import Run
from resync.tasks.models.options.base import ModelOptions
from resync.tools.cli.declare import (
    ANY_PAPER,
    CONFIGS,
    JSON,
    OF_PAPER,
    PILOTS,
    RESULTS,
    SCALE,
    flag,
    runs_of,
    suite_of,
    verb,
)


def costs_of(suite: Suite, runs: Sequence[Run], results: Path) -> list[Cost]:
    """What runs cost, with the hours that follow from rehearsals, published times or the repository's own runs."""
    from resync.papers.archive.reference import NAME
    from resync.papers.archive.unpack import hours_of
    from resync.papers.plan.forecast import with_expected_hours
    from resync.papers.plan.rehearsed import rates_of
    from resync.tasks.models import flops_per_sample, num_parameters

    size, flops_of_input = _of_model(num_parameters), _of_model(flops_per_sample)
    sized = [cost(run, size(run), round(flops_of_input(run) * run.inputs_per_sample)) for run in runs]
    rates: dict[str, Rates] = {}
    archived: dict[str, float] = {}
    for scale, paper in sorted({(run.scale, run.paper) for run in runs}):
        rates |= rates_of(results, scale)
        archived |= hours_of(results / NAME, scale, paper)
    published = {name: paper.published for name, paper in suite.papers.items()}
    return with_expected_hours(runs, sized, rates, published, archived)


@verb(
    "estimate what runs cost (rounds, bytes, operations, GPU-hours, disk), and name missing data; no training",
    CONFIGS, RESULTS, ANY_PAPER, SCALE, PILOTS, JSON,
    flag("--by", choices=("run", "experiment", "paper"),
         help="what each entry is about (default: paper and experiment, in JSON run)"),
    flag("--write", type=Path, metavar="STEM", help="write STEM.json and STEM.md instead of printing one of them"),
)  # fmt: skip
def _plan(options: argparse.Namespace) -> None:
    from resync.papers.plan import table, table_of_totals, totals
    from resync.tasks.prepare.availability import missing

    suite = suite_of(options)
    with all_kept():
        runs = runs_of(suite, options)
        costs = costs_of(suite, runs, options.results)
    sums = {of: totals(costs, of) for of in ("experiment", "paper")}
    of_runs = (item.as_dict() for item in costs)
    entries = json_text(list(map(asdict, sums[options.by]) if options.by in sums else of_runs))
    tables = {"run": table(costs)} | {of: table_of_totals(summed, of) for of, summed in sums.items()}
    if options.write:
        blocks = (f"## By {of}\n\n```text\n{tables[of]}\n```\n" for of in ("paper", "experiment", "run"))
        write_text(Path(f"{options.write}.json"), entries + "\n")
        write_text(Path(f"{options.write}.md"), "\n".join([f"# What runs cost at {options.scale} scale\n", *blocks]))
    else:
        shown = [options.by] if options.by else ["paper", "experiment"]
        print(entries if options.json else "\n\n".join(tables[of] for of in shown))
    for line in missing(run.data.name for run in runs if run.data.component.is_prepared):
        print(f"resync: {line}", file=sys.stderr)


@verb(
    "predict how long runs take on a network, and where the time goes; no training",
    CONFIGS, RESULTS, OF_PAPER, SCALE, JSON,
    flag("--network", choices=tuple(LINKS), required=True, help="link between nodes"),
    flag("--inside", choices=tuple(LINKS), default="pcie_3_x16", help="link inside a node (default: %(default)s)"),
    flag("--all-reduce", choices=tuple(ALL_REDUCES), default="ring",
         help="all-reduce algorithm between nodes, for series that do not choose one (default: %(default)s)"),
    flag("--compute", type=float, metavar="SECONDS",
         help="time of a local step without communication (default: as rehearsed, or fitted to two published times)"),
    flag("--delay", type=float, default=0.0, metavar="SECONDS",
         help="mean of the exponential delay of every step (default: none)"),
    flag("--backward", type=float, default=0.0, metavar="SECONDS",
         help="part of --compute that hides averages of gradients, as DDP's backward pass does (default: none)"),
    flag("--experiment", nargs="+", help="only these experiments (default: all of the paper)"),
    flag(
        "--workers",
        type=int,
        nargs="+",
        help="extrapolate to this number of workers, with the same batch size per worker; with several numbers, show "
        "how each method scales for a fixed number of samples, and from how many workers on it computes for less than "
        "half of the time",
    ),
)  # fmt: skip
def _time(options: argparse.Namespace) -> None:
    from resync.papers.plan import scaling
    from resync.papers.plan.forecast import forecast, nodes_of, table
    from resync.papers.plan.rehearsed import rates_of
    from resync.tasks.models import num_parameters

    def network(run: Run) -> Network:
        return nodes_of(run, LINKS[options.network], LINKS[options.inside], options.all_reduce)

    if options.backward and (options.compute is None or len(options.workers or ()) > 1):
        raise UserError("--backward: allowed with --compute and at most one number of --workers")
    suite, count = suite_of(options), _of_model(num_parameters)
    by_series = {(run.experiment, run.series): run for run in runs_of(suite, options)}
    runs = [(run, count(run)) for run in by_series.values()]
    published = suite.papers[options.paper].published
    numbers, rates = options.workers or [None], rates_of(options.results, options.scale)
    given: dict[str, Any] = {"compute": options.compute, "delay": options.delay, "rates": rates}
    if len(numbers) > 1:
        scaled, at_the_end, unknown = scaling.scalings(runs, published, network, numbers, **given)
        print(json_text([asdict(item) for item in scaled]) if options.json else scaling.table(scaled, at_the_end))
    else:
        forecasts, unknown = forecast(runs, published, network, **given, backward=options.backward, workers=numbers[0])
        print(json_text([item.as_dict() for item in forecasts]) if options.json else table(forecasts))
    for line in unknown:
        print(f"resync: left out: {line}", file=sys.stderr)


def _of_model(count_of: Callable[[ModelOptions, Sequence[int], int], int]) -> Callable[[Run], int]:
    """A function of a run that counts for its model and data, once per model."""
    counts: dict[str, int] = {}

    def count(run: Run) -> int:
        key = f"{run.model.model_dump_json()} on {run.data.name}"
        if key not in counts:
            shape, classes = run.facts["input_shape"], run.facts["num_classes"]
            counts[key] = count_of(run.model, shape, classes)
        return counts[key]

    return count


@verb(
    "write the JSON Schemas of the configuration files, which editors use",
    flag("--directory", type=Path, default=Path("workflow/schemas"), help="their folder (default: %(default)s)"),
)
def _schema(options: argparse.Namespace) -> None:
    from resync.papers.paper import schema

    schema.export(options.directory)

"""Verbs that carry out the workflow and show what it made."""

from __future__ import annotations

import argparse
import sys
import time
import webbrowser
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from resync.base.errors import UserError
from resync.base.settings.errors import not_among
from resync.papers.paper import Suite
from resync.tools.cli.declare import SCALE, flag, suite_of, verb
from resync.tools.cli.declared import REFERENCE, drawn_file
from resync.tools.workflow import TARGETS, why_not_made

_PROFILES = Path("workflow/profiles")


@verb(
    "train, draw and audit: all papers, a paper, a figure or table (qsr/fig5), or any target of the workflow",
    SCALE,
    flag("-n", dest="dry_run", action="store_true", help="only say what would be trained and drawn, and which data are "
         "missing"),
    flag("--profile", default="local", help="folder of workflow/profiles, or any other one of Snakemake's: local "
         "(default) or slurm"),
    flag("what", nargs="*", metavar="WHAT", help="paper, paper/item, a file such as figures/smoke/qsr/fig5.pdf, or "
         f"{', '.join(TARGETS)}, pilots (default: everything); `snakemake` itself takes more flags"),
)  # fmt: skip
def _run(options: argparse.Namespace) -> int:
    options.configs, started = Path("paper_configs"), time.monotonic()
    suite = suite_of(options)
    items = [name for name in options.what if _is_item(suite, name)]
    targets = [str(drawn_file(suite, options.scale, name, Path("figures"))) if name in items else name
               for name in options.what]  # fmt: skip
    for name, target in zip(options.what, targets, strict=True):
        _require_target(suite, options.scale, name, target)
    if options.dry_run:
        return snakemake(targets, options.scale, options.profile, "--dry-run", "--quiet", "all")
    code = snakemake(targets, options.scale, options.profile)
    papers = [paper for paper in (options.what or suite.papers) if paper in suite.papers]
    if papers or items:
        from resync.tools.cli.ending import (
            ending,  # reads results and audits, which takes packages that a list does not
        )

        if papers and not code and len(papers) < len(suite.papers):
            _report(suite, options.scale)
        text, failed = ending(suite, options.scale, papers, items, time.monotonic() - started, code)
        print(f"\n{text}")
        return code or int(failed)
    return code


def _report(suite: Suite, scale: str) -> None:
    """Write the site of the papers that have results, which the workflow writes with all papers only."""
    from resync.papers.report import report, write_index

    there = [paper for paper in suite.papers if Path("results", scale, paper).is_dir()]
    part = Suite({name: suite.papers[name] for name in there}, {name: suite.expanded[name] for name in there})
    report(part, scale, Path("results"), Path("figures"))
    write_index(suite, Path("results"), Path("figures"))


def snakemake(targets: Sequence[str], scale: str, profile: str, *flags: str) -> int:
    """Carry out the workflow for some targets, with a profile of workflow/profiles or another one; its exit code."""
    from resync.base.processes import warm

    if profile == "slurm" and find_spec("snakemake_executor_plugin_slurm") is None:
        raise UserError("--profile slurm: its executor is not installed, allowed: pip install '.[slurm]' in a clone")
    known = _PROFILES / profile
    command = [
        sys.executable, "-m", "snakemake", *targets, "--profile", str(known) if known.is_dir() else profile,
        "--config", f"scale={scale}", *flags,
    ]  # fmt: skip
    if profile == "local" and not flags:
        return warm.run([*command, "--executor", "resync"])
    return warm.run_alone(command)  # jobs on a cluster import for themselves


def _is_item(suite: Suite, name: str) -> bool:
    paper, _, item = name.partition("/")
    return paper in suite.papers and item in suite.papers[paper].items


def _require_target(suite: Suite, scale: str, name: str, target: str) -> None:
    """Raise ValueError for what the workflow cannot make, before it is started."""
    paper, _, item = name.partition("/")
    if name != target and item not in suite.items(paper, scale):
        there = [other for other in suite.scales if item in suite.items(paper, other)]
        raise UserError(f"{name}: not at {scale} scale, allowed: --scale {' or '.join(there)}")
    if name != target or name in (*suite.papers, *TARGETS, "pilots") or paper in ("figures", "results"):
        return
    if item and paper in suite.papers:
        raise UserError(f"{paper}: item: {not_among(item, suite.papers[paper].items)}")
    raise UserError(why_not_made(paper, suite))


@verb(
    "open results in the browser: the site of a scale, or a figure; the repository's own where there are none of yours",
    SCALE,
    flag("what", nargs="?", metavar="PAPER/ITEM", help="a figure or table (default: the site)"),
)  # fmt: skip
def _open(options: argparse.Namespace) -> int:
    options.configs = Path("paper_configs")
    if options.what is None:
        sites = (Path(folder, options.scale, "site") for folder in ("results", ".reference/results"))
        places = [folder / "index.html" for folder in (*sites, Path("results"))]
        otherwise = "resync run, or make report-reference for the repository's own results"
    else:
        suite = suite_of(options)
        if not _is_item(suite, options.what):
            named = " or ".join(suite.places_of(options.what)) or "paper/item, as `resync list PAPER` has them"
            raise UserError(f"{options.what}: no figure or table, allowed: {named}")
        kept = [(Path("figures/reference"), file.parent.name) for file in REFERENCE.glob("*/audit.json")]
        drawn = [drawn_file(suite, at, options.what, where) for where, at in [(Path("figures"), options.scale), *kept]]
        places = [file.with_suffix(suffix) for file in drawn for suffix in (file.suffix, ".png")]
        otherwise = f"resync run {options.what} --scale {options.scale}"
    there = next((place for place in places if place.exists()), None)
    if there is None:
        raise UserError(f"{options.what or 'site'}: not made yet at {options.scale} scale, allowed: {otherwise}")
    print(there)
    webbrowser.open(there.absolute().as_uri())
    return 0

"""Declaration of the command line's verbs, each with a function, a help line and flags, and the common flags."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from functools import lru_cache, wraps
from itertools import islice
from pathlib import Path
from typing import Any

from resync.base.errors import UserError
from resync.base.processes.garbage import all_kept
from resync.base.settings.errors import closest, not_among
from resync.papers.paper import Suite, load_suite
from resync.runs.run import Run
from resync.runs.run.run import SCALES, Resources

Verb = Callable[[argparse.Namespace], int | None]
GROUPS = {
    "start": ("run", "status", "open", "new", "compare", "data", "doctor"),
    "ask": ("list", "show", "audit", "plan", "time", "power", "diff"),
    "share": ("archive", "redraw", "reference", "import"),
    "plumbing, which the workflow calls": ("train", "launch", "rehearse", "collect", "render", "report", "schema"),
}
"""The verbs as `resync --help` lists them."""
VERBS: dict[str, tuple[Verb, str, tuple[Flag, ...]]] = {}
"""Function, help line and flags of each verb."""


Flag = tuple[str, dict[str, Any]]
"""A flag or argument of a verb, and its settings for argparse."""


def flag(name: str, **settings: Any) -> Flag:
    """The flag `name`, with the keyword arguments of argparse's `add_argument`."""
    return name, settings


def verb(text: str, *flags: Flag) -> Callable[[Verb], Verb]:
    """Decorator that makes the function `_name` the verb `name` with this help line and these flags."""

    def declare(function: Verb) -> Verb:
        VERBS[function.__name__.removeprefix("_")] = function, text, flags
        return function

    return declare


def _folder(name: str, default: str, text: str) -> Flag:
    return flag(name, type=Path, default=Path(default), help=f"{text} (default: %(default)s)")


_PAPERS = "paper_configs"
CONFIGS = _folder("--configs", _PAPERS, "folder of the papers")
RESULTS = _folder("--results", "results", "folder of the results")
FIGURES = _folder("--figures", "figures", "folder of the figures")


class _Named(argparse.Action):
    """Reads `PAPER` or `PAPER/ITEM` into `paper` and `item`, None where not given."""

    def __call__(self, _: object, namespace: argparse.Namespace, value: Any, option: str | None = None) -> None:
        namespace.paper, _, item = (value or "").partition("/")
        namespace.item = item or None


_ITEM = "PAPER[/ITEM]"
PAPER = flag("paper", metavar="PAPER", help="name of the paper, a folder in --configs; no other paper is read")
OF_PAPER = flag("paper", action=_Named, metavar=_ITEM, help="the paper, or its figure or table, that is meant; no "
                "other paper is read")  # fmt: skip
ANY_PAPER = flag("paper", action=_Named, nargs="?", metavar=_ITEM, help="only this paper, figure or table (default: "
                 "all papers); no other paper is read")  # fmt: skip
SCALE = flag("--scale", choices=SCALES, default="smoke", help="scale of the runs (default: %(default)s)")
PILOTS = flag("--pilots", action="store_true", help="the pilot runs instead of those that figures and claims read")
JSON = flag("--json", action="store_true", help="print JSON")
TRAINING = (
    flag("--config", type=Path, required=True, help="the run's run.yaml"),
    flag("--out", type=Path, required=True, help="folder for the run's results"),
    flag(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a setting for a trial, e.g. optimizer.weight_decay=0.05; may be given several times. Its results "
        "say so, and no figure or audit shows them",
    ),
    flag(
        "--timeout",
        type=int,
        default=Resources().timeout_seconds,
        metavar="SECONDS",
        help="time without a completed step after which a process exits (default: %(default)s)",
    ),
)
"""Common flags of the verbs that train a run."""


def runs_of(suite: Suite, options: argparse.Namespace) -> list[Run]:
    """The runs named on the command line: scale, paper or item, experiments; with `--pilots`, the pilot runs.

    Raises ValueError where there are none, and says at which scales there are.
    """
    if runs := declared_runs(suite, options, options.scale):
        return runs
    kind = "pilot runs" if getattr(options, "pilots", False) else "runs"
    elsewhere = " and ".join(scale for scale in SCALES if declared_runs(suite, options, scale))
    raise UserError(f"--scale {options.scale}: no {kind} of {options.paper or 'any paper'}"
                    + (f", allowed: {elsewhere}" if elsewhere else " at any scale"))  # fmt: skip


def declared_runs(suite: Suite, options: argparse.Namespace, scale: str) -> list[Run]:
    """The runs named on the command line, as `runs_of` has them, at any scale, where there may be none."""
    declared = suite.pilots if getattr(options, "pilots", False) else suite.runs
    experiments, item = getattr(options, "experiment", None) or [None], getattr(options, "item", None)
    papers = [options.paper] if options.paper else list(suite.papers)
    if experiments != [None]:
        known = {name for paper in papers for name in suite.papers[paper].experiments}
        for name in (name for name in experiments if name not in known):
            raise UserError(f"--experiment: {not_among(name, sorted(known))}")
    runs = [run for paper in papers for run in declared(paper, scale) if {None, run.experiment} & {*experiments}]
    if item is None:
        return runs
    shown = {(run.experiment, run.series) for run in suite.item_runs(options.paper, item, scale)}
    return [run for run in runs if (run.experiment, run.series) in shown]


def or_archive(results: Path, scale: str | None = None) -> Path:
    """A folder of results, or the archive `reference` in it where it has no run of the scale, which is said."""
    from resync.papers.archive.unpack import own_archive

    archive = own_archive(results, scale)
    if archive:
        runs = f"of {scale} scale" if scale else "at any scale"
        print(f"resync: {results}: no run {runs}: these are the results of {archive}", file=sys.stderr)
    return archive or results


def on_results(function: Verb) -> Verb:
    """Decorator of a verb that reads results: those of the archive where the folder has none, unpacked meanwhile."""

    @wraps(function)
    def call(options: argparse.Namespace) -> int | None:
        from resync.papers.archive.unpack import opened, scales_of

        folder = or_archive(options.results, options.scale) if options.results.is_dir() else options.results
        if folder == options.results:
            return function(options)
        with opened(folder, getattr(options, "paper", None) or "*") as results:
            scale = options.scale or next(scale for scale in SCALES if scale in scales_of(folder))
            changed = {"results": results, "archive": folder, "scale": scale}
            return function(argparse.Namespace(**vars(options) | changed))

    return call


def _papers(parsed_args: argparse.Namespace, **_: object) -> list[str]:
    return [file.parent.name for file in Path(getattr(parsed_args, "configs", "paper_configs")).glob("*/paper.yaml")]


def _experiments(parsed_args: argparse.Namespace, **_: object) -> list[str]:
    paper = getattr(parsed_args, "paper", None) or "*"
    return [file.stem for file in Path(parsed_args.configs).glob(f"{paper}/experiments/*.yaml")]


COMPLETED = {"--experiment": _experiments, "paper": _papers, "what": _papers}
"""What a shell offers for the values of some flags."""


def suite_of(options: argparse.Namespace) -> Suite:
    """The configuration of the paper named on the command line, or of all papers.

    Raises ValueError where the papers, which an installed package does not have, are not in this folder.
    """
    if options.configs == Path(_PAPERS) and not options.configs.is_dir():
        raise UserError(f"{_PAPERS}: not here, allowed: a clone of the repository, or another folder with --configs")
    paper = getattr(options, "paper", None)
    with all_kept():
        stray = paper and options.configs.is_dir() and not _is_near_paper(options.configs, paper)
        if stray and (named := load_suite(options.configs).places_of(str(paper))):
            raise UserError(f"paper: {not_among(paper, named)}")
        return _read(options.configs, paper, _files(options.configs, paper))


@lru_cache(maxsize=16)
def _read(configs: Path, paper: str | None, files: frozenset[tuple[str, int, int, int]]) -> Suite:
    """The papers, read once by a process that carries out several verbs, as long as no file is another one."""
    return load_suite(configs, papers=[paper] if paper else None)


def _files(configs: Path, paper: str | None) -> frozenset[tuple[str, int, int, int]]:
    """The files that `load_suite` reads or refuses, of all papers or of one, and what changes with their content."""
    top = configs.absolute()
    folders = [top / "scales", top / paper] if paper else [top]
    walked = [*islice(os.walk(top), 1), *(here for folder in folders for here in os.walk(folder))]
    files = {os.path.join(folder, name) for folder, below, names in walked for name in (*below, *names)}
    known = [(file, os.stat(file, follow_symlinks=os.path.exists(file))) for file in files]
    return frozenset((file, there.st_ino, there.st_size, there.st_mtime_ns) for file, there in known)


def _is_near_paper(configs: Path, name: str) -> bool:
    """Whether a name is that of a paper, or similar to one; else the other papers are worth reading."""
    return closest(name, [file.parent.name for file in configs.glob("*/paper.yaml")]) is not None

"""The verb that trains an algorithm beside others."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from resync.base.errors import UserError
from resync.base.settings.errors import not_among
from resync.base.settings.options import option_names
from resync.papers.paper import load_suite
from resync.tools.cli.declare import flag, verb
from resync.tools.cli.running import snakemake

if TYPE_CHECKING:
    from resync.runs.results.runs import RunState
    from resync.runs.run import Run

    ByTask = dict[str, list[list[RunState]]]

_CONFIGS, _RESULTS = Path("paper_configs"), Path("results")


@verb(
    "train an algorithm on images, captions and characters, and compare it with those in the archive",
    flag("--scale", choices=("smoke", "mini"), default="mini", help="mini (default): real data, beside runs of the "
         "repository's own archive; smoke: minutes, only shows that everything works"),
    flag("-n", dest="dry_run", action="store_true", help="only write the configuration, in which options and learning "
         "rates can be changed, and say what would be trained"),
    flag("--profile", default="local", help="folder of workflow/profiles, or any other one of Snakemake's: local "
         "(default) or slurm"),
    flag("algorithm", metavar="ALGORITHM", help="such as one that `resync new algorithm` has begun"),
)  # fmt: skip
def _compare(options: argparse.Namespace) -> int:
    from resync.papers.comparison import declared, drawn, tasks
    from resync.runs.results.runs import state_of
    from resync.runs.results.status import duration

    name, scale, started = options.algorithm, options.scale, time.monotonic()
    if not _CONFIGS.is_dir():
        raise UserError(f"{_CONFIGS}: not here, allowed: a clone of the repository")
    if name not in (known := option_names("sync")):
        raise UserError(f"algorithm: {not_among(name, known)}, or one that `resync new algorithm {name}` begins")
    paper = declared.paper_of(name)
    if declared.write_pilots(load_suite(_CONFIGS, papers=tasks.PAPERS), name, _CONFIGS):
        print(f"{_CONFIGS / paper}: written; options and learning rates can be changed there")
    suite = load_suite(_CONFIGS, papers=[*tasks.PAPERS, paper])
    with tasks.with_archive(_RESULTS, scale) as folders:
        others = tasks.others_of(suite, scale, folders)
        pilots = declared.pilots_of(suite, name, scale, _RESULTS)
        if options.dry_run:
            print("\n".join(_plan(pilots, others)))
            return 0
        if code := _train([*_flat(pilots), *_flat(others)], options):
            return code
        declared.write_confirming(suite, name, _CONFIGS, _RESULTS)
        suite = load_suite(_CONFIGS, papers=[*tasks.PAPERS, paper])
        own = [state_of(run, _RESULTS) for task in tasks.TASKS for run in suite.runs(paper, scale, task)]
        if code := _train(own, options):
            return code
        comparisons = list(drawn.compared(suite, name, scale, folders))
        shown = [file for comparison in comparisons for file in comparison.write(Path("figures", scale, paper))]
    print(f"\nDone in {duration(time.monotonic() - started)}.")
    for place in shown:
        print(f"{'Open' if place == shown[0] else '':<11}{place}")
    for comparison in comparisons:
        print("", *comparison.lines, sep="\n")
    print(f"\nNext       change paper_configs/{paper}: the same command trains what changed")
    print(f"           change src/resync/workers/sync/{name}.py: rm -r results/{scale}/{paper} before the same command")
    return 0


def _flat(by_task: ByTask) -> list[RunState]:
    return [state for series in by_task.values() for states in series for state in states]


def _train(states: Sequence[RunState], options: argparse.Namespace) -> int:
    """Train what has not ended; return the exit code of the workflow. Raises ValueError where data are missing."""
    from resync.runs.results.summary import NAME

    waiting = [state.run for state in states if not state.has_ended]
    if missing := _missing_data(waiting):
        get = f"`resync data get --scale {options.scale}`, which says how to get what it cannot download"
        raise UserError(f"data missing: {', '.join(missing)}, allowed: {get}; or --scale smoke")
    targets = [f"results/{run.directory}/{NAME}" for run in waiting]
    return snakemake(targets, options.scale, options.profile) if waiting else 0


def _missing_data(runs: Iterable[Run]) -> list[str]:
    from resync.tasks.prepare.availability import missing_of

    return list(missing_of(run.data.name for run in runs if run.data.component.is_prepared))


def _plan(pilots: ByTask, others: ByTask) -> Iterator[str]:
    """By task what would be trained, and for how long by the runs that there are."""
    for task, rates in pilots.items():
        beside = [state for states in others[task] for state in states]
        seconds = [state.result.summary["seconds"]["wall"] for state in beside if state.has_ended and state.result]
        seeds = len(others[task][0])
        yield f"{task}: {len(rates)} learning rates with {len(rates[0])} pilots each, then {seeds} runs at the best"
        if seconds:
            yield f"  about {fmean(seconds) * (sum(map(len, rates)) + seeds) / 60:.0f} minutes of a core"
        yield f"  beside {len(beside)} runs of {len(others[task])} series, {len(beside) - len(seconds)} to train"
    if missing := _missing_data(state.run for state in _flat(pilots)):
        yield f"data missing: {', '.join(missing)}"

"""Runs that start from another run, whose hash is a part of theirs."""

from collections.abc import Iterator

from resync.base.settings.errors import not_among
from resync.runs.run.run import Run


def with_starts(runs: list[Run]) -> tuple[list[Run], list[str]]:
    """The runs of a paper, each with the hash of the run that it starts from, and the problems with `start_from`.

    If the start of a run changes, the hash of the run changes too, so that it is trained again.
    """
    if not any(run.start_from for run in runs):
        return runs, []
    known = {str(run.directory): run for run in runs}
    problems = [problem for run in runs for problem in _problems(run, known)]
    if problems:
        return runs, list(dict.fromkeys(problems))
    return [_with_start(run, known) for run in runs], []


def _problems(run: Run, known: dict[str, Run]) -> Iterator[str]:
    where = f"{run.paper}/{run.experiment}/{run.series} at scale {run.scale}: start_from"
    path = [run]
    while start := path[-1].start_directory:
        if str(start) not in known:
            prefix = f"{run.scale}/{run.paper}/"
            here = [name.removeprefix(prefix) for name in known if name.startswith(prefix)]
            yield f"{where}: {not_among(str(path[-1].start_from), here)}"
            return
        if known[str(start)] in path:
            yield f"{where}: found {run.start_from}, which starts from this run itself, allowed: an earlier one"
            return
        path.append(known[str(start)])
    if len(path) > 1:
        yield from (f"{where}: {problem}" for problem in _unfit(run, path[1]))


def _unfit(run: Run, start: Run) -> Iterator[str]:
    """Why the run cannot start from the checkpoint that it names: it is not kept, or is not of such a training."""
    step = run.start_step
    if step is None:
        return
    if step not in start.kept_steps:
        kept = ", ".join(f"@step{kept_step}" for kept_step in start.kept_steps) or "none"
        yield f"found {run.start_from}, which that run does not keep, allowed: {kept} (its checkpoint.keep_epochs)"
    if run.start_state != "all":
        return
    for name in ("data", "model", "workers", "steps_per_epoch"):
        if getattr(run, name) != getattr(start, name):
            yield f"found {run.start_from} with another {name}, allowed with start_state all: the same"
    for name in ("optimizer", "sync"):
        ours, theirs = getattr(run, name).name, getattr(start, name).name
        if ours != theirs:
            yield f"found {run.start_from} with {name} {theirs}, allowed with start_state all: {ours}"
    if step >= run.total_steps:
        yield f"found {run.start_from}, allowed with start_state all: a step before the end, {run.total_steps}"


def _with_start(run: Run, known: dict[str, Run]) -> Run:
    start = run.start_directory
    if start is None:
        return run
    return run.with_start(_with_start(known[str(start)], known))

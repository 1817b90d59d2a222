"""Runs that start from the end of another run, whose hash is a part of theirs."""

from collections.abc import Iterator

from resync.config.run import Run
from resync.settings.errors import not_among


def with_starts(runs: list[Run]) -> tuple[list[Run], list[str]]:
    """The runs of a paper, each with the hash of the run that it starts from, and the problems with `start_from`.

    If the start of a run changes, the hash of the run changes too, so that it is trained again.
    """
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


def _with_start(run: Run, known: dict[str, Run]) -> Run:
    start = run.start_directory
    if start is None:
        return run
    return run.starting(_with_start(known[str(start)], known).hash)

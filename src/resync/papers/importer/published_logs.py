"""The values of published runs that were imported: `logs/<paper>/<table>.json` below the results."""

from contextlib import suppress
from pathlib import Path

from resync.base.files import read_json
from resync.papers.paper.logs import LogGroup, LogsFile
from resync.runs.metrics.registry import METRICS
from resync.runs.results.errors import ResultsError
from resync.runs.results.seed_values import SeedValues


def file_of(results: Path, paper: str, table: str) -> Path:
    """The file with the values of a table's runs."""
    return results / "logs" / paper / f"{table}.json"


def values_of(results: Path, paper: str, logs: LogsFile, group: LogGroup) -> SeedValues:
    """The values of the runs of a group. Raises ResultsError, which says what to do, if they are not there."""
    file = file_of(results, paper, group.table)
    again = f"resync import --format runs --run {paper}/{group.table}"
    [table] = [table for table in logs.tables if table.id == group.table]
    try:
        content = read_json(file)
    except FileNotFoundError:
        raise ResultsError(f"{file}: missing; {again} reads the table") from None
    except ValueError as error:
        raise ResultsError(str(error)) from error
    with suppress(AttributeError, KeyError, TypeError, ValueError):
        values = SeedValues.of(content["groups"][group.id].values())
        if content["sha256"] == table.sha256 and all(map(METRICS[group.metric].has, values.values)):
            return values
    raise ResultsError(f"{file}: of another table or declaration; {again} --replace reads it again")

"""Import of a published table of runs: the value of every run that a paper's `logs.yaml` declares."""

import json
from pathlib import Path

from resync.base.files import write_text
from resync.base.settings.errors import not_among, suggestion
from resync.papers.importer.log import LogError, Origin, read_bytes, require_possible, to_number
from resync.papers.importer.published_logs import file_of
from resync.papers.importer.table import PlacedTable, read_csv
from resync.papers.paper import Suite
from resync.papers.paper.logs import LogGroup, LogTable


def import_runs(suite: Suite, table: str, source: Path, results: Path, replace: bool = False) -> Path:
    """Write the values of the runs in `source` for `table`, as `paper/table`; return the file.

    Raises LogError, before anything is written, if the source is not the declared table, or has not the declared runs,
    and also if there are values already, unless `replace`.
    """
    paper, _, name = table.partition("/")
    known = {f"{owner.id}/{log.id}": log for owner in suite.papers.values() for log in owner.logs.tables}
    if table not in known:
        raise LogError(f"--run: {not_among(table, known)}")
    file = file_of(results, paper, name)
    if file.exists() and not replace:
        raise LogError(f"{file}: exists, allowed: none, or with --replace")
    declared, origin = known[table], Origin.of(source.name, read_bytes(source))
    if origin.sha256 != declared.sha256:
        raise LogError(f"{source}: SHA-256: found {origin.sha256}, allowed: {declared.sha256}, that of {table}")
    read = read_csv(source)
    for column in filter(None, (declared.group, *declared.run, declared.step, declared.value)):
        if column not in read.columns:
            raise LogError(f"{read.place}: no column {column!r}{suggestion(column, read.columns)}")
    groups = [group for group in suite.papers[paper].logs.groups if group.table == name]
    values = {group.id: _values(read, declared, group) for group in groups}
    content = {"source": origin.name, "sha256": origin.sha256, "groups": values}
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, json.dumps(content, indent=1) + "\n")
    return file


def _values(table: PlacedTable, declared: LogTable, group: LogGroup) -> dict[str, float]:
    values: dict[str, float] = {}
    for cells in table.rows:
        if cells[declared.group].text != group.name:
            continue
        if group.step is not None and declared.step is not None:
            at = cells[declared.step]
            if to_number(at.text, at.place, declared.step) != group.step:
                continue
        run = "/".join(cells[column].text for column in declared.run)
        cell = cells[declared.value]
        if run in values and group.step is not None:
            raise LogError(f"{cell.place}: found step {group.step} of run {run} again, allowed: once")
        values[run] = value = to_number(cell.text, cell.place, declared.value)
        require_possible([(cell.place, {group.metric: value})], {group.metric: declared.value})
    if not values:
        at_step = "" if group.step is None else f" at step {group.step}"
        raise LogError(
            f"{table.place}: no row with {declared.group} {group.name!r}{at_step}, which {group.id} declares"
        )
    return values

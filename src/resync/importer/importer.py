"""Imports a log: finds the declared run, reads the format, writes the run's files."""

from collections.abc import Sequence
from pathlib import Path

from resync.config import Run, Suite
from resync.config.columns import Source, load_columns
from resync.importer import sgp, wandb_runs
from resync.importer.log import Log, LogError, Origin, read_bytes
from resync.importer.results import refuse_to_overwrite, write
from resync.importer.table import read_csv, translate
from resync.results.collect import COLUMNS
from resync.settings.errors import suggestion


def import_log(
    suite: Suite,
    run: str,
    scale: str,
    kind: str,
    sources: Sequence[str],
    results: Path,
    columns: Path | None = None,
    wandb_run: str | None = None,
    replace: bool = False,
) -> Path:
    """Write the log in `sources` as the results of the declared run with id `run`; return the run's folder.

    `kind` is the format: sgp, csv, wandb-csv or wandb-api; `columns` the file of a column map, `wandb_run` the name
    of one of several runs in an export. Raises LogError or ConfigError for what cannot be imported, before anything
    is written; also for a folder that has results, unless `replace`.
    """
    declared = _declared(suite, run, scale)
    directory = results / declared.directory
    if not replace:
        refuse_to_overwrite(directory)
    _refuse_without_effect(kind, columns, wandb_run)
    log, origins = _read(declared, kind, sources, _column_map(kind, columns), wandb_run)
    write(declared, log, kind, origins, directory, replace)
    return directory


def _declared(suite: Suite, run: str, scale: str) -> Run:
    runs = {each.id: each for paper in suite.papers for each in suite.runs(paper, scale)}
    if run not in runs:
        allowed = f"a run that `resync expand --paper ... --scale {scale}` lists"
        raise LogError(f"--run: found {run!r}, allowed: {allowed}{suggestion(run, runs)}")
    return runs[run]


def _refuse_without_effect(kind: str, columns: Path | None, wandb_run: str | None) -> None:
    if kind == "sgp" and columns is not None:
        raise LogError("--columns: has no effect on format sgp, whose columns are known")
    if kind != "wandb-csv" and wandb_run is not None:
        raise LogError("--wandb-run: has no effect, allowed: with format wandb-csv")


def _column_map(kind: str, columns: Path | None) -> dict[str, Source]:
    if kind == "sgp":
        return {}
    if columns is None:
        raise LogError(f"--columns: missing, format {kind} needs a file that maps its columns to ours")
    units = {name: column.unit for name, column in COLUMNS.items() if {"metrics", "steps"} & {*column.files}}
    return load_columns(columns, units)


def _read(
    run: Run, kind: str, sources: Sequence[str], columns: dict[str, Source], wandb_run: str | None
) -> tuple[Log, list[Origin]]:
    if kind in ("csv", "wandb-api") and len(sources) > 1:
        raise LogError(f"{sources[1]}: a second source, allowed: one with format {kind}")
    if kind == "wandb-api":
        table, origin = wandb_runs.read_server(sources[0])
        return translate(table, columns, run), [origin]
    files = [Path(source) for source in sources]
    origins = [Origin.of(file.name, read_bytes(file)) for file in files]
    if kind == "sgp":
        return sgp.read(files, run), origins
    if kind == "wandb-csv":
        return translate(wandb_runs.read_export(files, columns, wandb_run), columns, run), origins
    return translate(read_csv(files[0]), columns, run), origins

"""Import of a log: finds the declared run, reads the format and writes the run's files."""

from collections.abc import Callable, Sequence
from pathlib import Path

from resync.config import Run, Suite
from resync.config.columns import LogColumn, load_columns
from resync.config.metrics import METRICS, columns
from resync.importer import adpsgd, fairseq, sgp, wandb_runs
from resync.importer.log import ImportedLog, LogError, Origin, read_bytes
from resync.importer.results import refuse_second_seed, refuse_to_overwrite, write
from resync.importer.table import read_csv, translate
from resync.settings.errors import suggestion


def _sgp(files: Sequence[Path], run: Run) -> ImportedLog:
    """The CSV logs of either program of the original SGP code."""
    return adpsgd.read(files, run) if run.sync.name == "adpsgd" else sgp.read(files, run)


_ORIGINALS: dict[str, Callable[[Sequence[Path], Run], ImportedLog]] = {"sgp": _sgp, "fairseq": fairseq.read}
"""The formats of original programs, whose columns are known."""


def import_log(
    suite: Suite,
    run: str,
    scale: str,
    kind: str,
    sources: Sequence[str],
    results: Path,
    column_map: Path | None = None,
    wandb_run: str | None = None,
    replace: bool = False,
) -> Path:
    """Write the log in `sources` as the results of the declared run with id `run`; return the run's folder.

    `kind` is the format: sgp, fairseq, csv, wandb-csv or wandb-api; `column_map` is the file of a column map,
    `wandb_run` the name of one of several runs in an export. Raises LogError or ConfigError, before anything is
    written, if the log cannot be imported, and also if the folder has results, unless `replace`.
    """
    declared = _declared(suite, run, scale)
    directory = results / declared.directory
    if not replace:
        refuse_to_overwrite(directory)
    _refuse_without_effect(kind, column_map, wandb_run)
    log, origins = _read(declared, kind, sources, _column_map(kind, column_map), wandb_run)
    refuse_second_seed(directory, origins)
    write(declared, log, kind, origins, directory, replace)
    return directory


def _declared(suite: Suite, run: str, scale: str) -> Run:
    runs = {each.id: each for paper in suite.papers for each in suite.runs(paper, scale)}
    if run not in runs:
        allowed = f"a run that `resync expand --paper ... --scale {scale}` lists"
        raise LogError(f"--run: found {run!r}, allowed: {allowed}{suggestion(run, runs)}")
    return runs[run]


def _refuse_without_effect(kind: str, column_map: Path | None, wandb_run: str | None) -> None:
    if kind in _ORIGINALS and column_map is not None:
        raise LogError(f"--columns: has no effect on format {kind}, whose columns are known")
    if kind != "wandb-csv" and wandb_run is not None:
        raise LogError("--wandb-run: has no effect, allowed: with format wandb-csv")


def _column_map(kind: str, column_map: Path | None) -> dict[str, LogColumn]:
    if kind in _ORIGINALS:
        return {}
    if column_map is None:
        raise LogError(f"--columns: missing, format {kind} needs a file that maps its columns to ours")
    units = {name: METRICS[name].unit for name in (*columns("metrics"), *columns("steps"))}
    return load_columns(column_map, units)


def _read(
    run: Run, kind: str, sources: Sequence[str], mapped: dict[str, LogColumn], wandb_run: str | None
) -> tuple[ImportedLog, list[Origin]]:
    if kind in ("csv", "wandb-api") and len(sources) > 1:
        raise LogError(f"{sources[1]}: a second source, allowed: one with format {kind}")
    if kind == "wandb-api":
        table, origin = wandb_runs.read_server(sources[0])
        return translate(table, mapped, run), [origin]
    files = [Path(source) for source in sources]
    origins = [Origin.of(file.name, read_bytes(file), wandb_run) for file in files]
    if kind in _ORIGINALS:
        return _ORIGINALS[kind](files, run), origins
    if kind == "wandb-csv":
        return translate(wandb_runs.read_export(files, mapped, wandb_run), mapped, run), origins
    return translate(read_csv(files[0]), mapped, run), origins

"""Import of a log: finds the declared run, reads the format and writes the run's files."""

from collections.abc import Sequence
from pathlib import Path

from resync.base.settings.errors import suggestion
from resync.papers.importer.log import ImportedLog, LogError, Origin, read_bytes
from resync.papers.importer.programs import ADPSGD, SGP, TRANSFORMER
from resync.papers.importer.results import refuse_second_seed, refuse_to_overwrite, write
from resync.papers.importer.table import read_csv, translate
from resync.papers.importer.wandb_runs import read_export, read_offline, read_server
from resync.papers.paper import Suite
from resync.runs.metrics.columns import load_columns
from resync.runs.metrics.registry import METRICS, columns
from resync.runs.run import Run


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

    `kind` is the format: sgp, fairseq, csv, wandb-csv, wandb-api or wandb-offline; `column_map` is the file of a
    column map, `wandb_run` the name of one of several runs in an export. Raises LogError or ConfigError, before
    anything is written, if the log cannot be imported, and also if the folder has results, unless `replace`.
    """
    runs = {candidate.id: candidate for paper in suite.papers for candidate in suite.runs(paper, scale)}
    if run not in runs:
        allowed = f"a run that `resync list ... --runs --scale {scale}` lists"
        raise LogError(f"--run: found {run!r}, allowed: {allowed}{suggestion(run, runs)}")
    declared = runs[run]
    directory = results / declared.directory
    if not replace:
        refuse_to_overwrite(directory)
    log, origins = _read(declared, kind, sources, column_map, wandb_run)
    refuse_second_seed(directory, origins)
    write(declared, log, kind, origins, directory, replace)
    return directory


def _read(
    run: Run, kind: str, sources: Sequence[str], column_map: Path | None, wandb_run: str | None
) -> tuple[ImportedLog, list[Origin]]:
    if kind != "wandb-csv" and wandb_run is not None:
        raise LogError("--wandb-run: has no effect, allowed: with format wandb-csv")
    files = [Path(source) for source in sources]
    if kind in ("sgp", "fairseq"):
        if column_map is not None:
            raise LogError(f"--columns: has no effect on format {kind}, whose columns are known")
        program = TRANSFORMER if kind == "fairseq" else ADPSGD if run.sync.name == "adpsgd" else SGP
        return program.read(files, run), _origins(files)
    if column_map is None:
        raise LogError(f"--columns: missing, format {kind} needs a file that maps its columns to ours")
    mapped = load_columns(column_map, {name: METRICS[name].unit for name in (*columns("metrics"), *columns("steps"))})
    if kind != "wandb-csv" and len(sources) > 1:
        raise LogError(f"{sources[1]}: a second source, allowed: one with format {kind}")
    if kind == "wandb-csv":
        table, origins = read_export(files, mapped, wandb_run), _origins(files, wandb_run)
    elif kind == "wandb-api":
        table, origins = read_server(sources[0])
    elif kind == "wandb-offline":
        table, origins = read_offline(files[0])
    else:
        table, origins = read_csv(files[0]), _origins(files)
    return translate(table, mapped, run), origins


def _origins(files: Sequence[Path], wandb_run: str | None = None) -> list[Origin]:
    return [Origin.of(file.name, read_bytes(file), wandb_run) for file in files]

"""Folders of runs in Parquet, and back: what training measured, to the byte.

For every paper of a scale there are `runs.parquet`, with a row per run (settings, summary and how its tables are
written), `metrics.parquet` and `steps.parquet`, with the rows of all runs, and `sha256.json`. Models, checkpoints and
wandb logs are left out, and so is the name of the host; `summary.json` says so in its entry `archived`. A run that
lacks files has no `<hash>.hash` after unpacking, so that Snakemake trains it when asked for it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from resync.archive.columns import Columns, columns_of
from resync.audit.logs import SCALE as LOGS_SCALE
from resync.config import Run, Suite
from resync.config.metrics import File, columns
from resync.files import read_json, replacing, write_bytes, write_text
from resync.results.errors import ResultsError
from resync.results.published_logs import file_of
from resync.results.runs import RunState, state_of
from resync.results.summary import (
    ARCHIVED,
    DIGESTS,
    NAME,
    digest,
    digest_of,
    left_out,
    read_summary,
    require_unchanged,
    text_of,
)

TABLES: tuple[File, ...] = ("metrics", "steps")
RUNS = "runs.parquet"
SEAL = "sha256.json"
"""The digests of the three tables of a paper."""
_FILES = (RUNS, *(f"{name}.parquet" for name in TABLES))
_KEPT = (".csv", ".txt")
"""The suffixes of the files of a run that are packed; those of others, as `model.pt`, are left out."""

_TABLE = pa.struct(
    [
        ("columns", pa.list_(pa.string())),
        ("whole", pa.list_(pa.string())),  # the columns that are written as integers
        ("rows", pa.int64()),
        ("text", pa.string()),  # of a table that does not follow from its numbers
    ]
)
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("run", "status", "config_hash", "run_yaml", "summary")),
        *((name, _TABLE) for name in TABLES),
        ("files", pa.list_(pa.struct([("name", pa.string()), ("text", pa.string())]))),
    ]
)


@dataclass
class Packed:
    """The runs of an archive's scale by paper, and the runs that have begun but are not in it, one line each."""

    runs: dict[str, list[Run]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(map(len, self.runs.values()))


def pack(suite: Suite, scale: str, sources: Sequence[Path], archive: Path) -> Packed:
    """Write the ended runs of a scale, of the first folder of results among `sources` that has each, below `archive`.

    Raises ResultsError if what was written does not unpack to the same files and states.
    """
    packed = Packed()
    written: list[tuple[Run, str, dict[str, str]]] = []
    for paper in suite.papers:
        found = list(_ended(suite.runs(paper, scale), sources, packed))
        if found:
            # Read once: where runs go on, the workflow may write run.yaml meanwhile.
            files = [_packed_files(source / state.run.directory) for state, source in found]
            packed.runs[paper] = [state.run for state, _ in found]
            written += [(state.run, state.status, texts) for (state, _), texts in zip(found, files, strict=True)]
            _write_paper(archive / scale / paper, [state for state, _ in found], files)
        _copy_logs(suite, paper, scale, sources, archive)
    with TemporaryDirectory() as folder:
        unpack(archive, scale, Path(folder))
        for run, status, texts in written:
            _require_same(run, status, texts, Path(folder))
    return packed


def unpack(archive: Path, scale: str, results: Path) -> None:
    """Write the runs of a scale of an archive as folders below `results`. Raises ResultsError for a damaged archive."""
    for file in sorted(archive.glob(f"{scale}/*/{RUNS}")):
        for directory, files in _read_paper(file.parent):
            target = results / scale / file.parent.name / directory
            target.mkdir(parents=True)
            for name, text in files.items():
                (target / name).write_bytes(text.encode())
            _require_whole(file, target)
    for file in sorted(archive.glob(f"{scale}/*/logs/*.json")):
        target = file_of(results, file.parents[1].name, file.stem)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())


def scales_of(archive: Path) -> list[str]:
    """The scales of an archive; none if the folder is no archive."""
    return sorted({file.parents[1].name for file in archive.glob(f"*/*/{RUNS}")})


def archive_in(path: Path) -> Path:
    """The archive at `path`, or that in its folder `results`, as in a crate. Raises ValueError if there is none."""
    found = next((each for each in (path, path / "results") if scales_of(each)), None)
    if found is None:
        raise ValueError(f"{path}: found no archive, allowed: a folder with <scale>/<paper>/{RUNS}")
    return found


@contextmanager
def opened(path: Path) -> Iterator[Path]:
    """A folder of results for the time of the block: `path` itself, or that to which the archive in it is unpacked.

    Raises ValueError if there is no such folder.
    """
    if not path.is_dir():
        raise ValueError(f"{path}: no such folder")
    if not any(map(scales_of, (path, path / "results"))):
        yield path
        return
    archive = archive_in(path)
    with TemporaryDirectory() as folder:
        for scale in scales_of(archive):
            unpack(archive, scale, Path(folder))
        yield Path(folder)


def _ended(runs: Iterable[Run], sources: Sequence[Path], packed: Packed) -> Iterator[tuple[RunState, Path]]:
    """The runs that have results of the declared configuration, each with the folder that has them."""
    for run in runs:
        states = [(state_of(run, source), source) for source in sources]
        if ended := next((found for found in states if found[0].has_ended), None):
            yield ended
        else:
            begun = [state for state, _ in states if state.status != "not run"]
            packed.left_out += [f"{run.id} ({run.scale}): {state.status}: {state.reason}" for state in begun]


def _write_paper(folder: Path, states: Sequence[RunState], texts: Sequence[Mapping[str, str]]) -> None:
    rows: list[dict[str, Any]] = []
    tables: dict[File, list[tuple[str, Columns]]] = {name: [] for name in TABLES}
    for state, files in zip(states, map(dict, texts), strict=True):
        row: dict[str, Any] = {"run": _name(state.run), "status": state.status, "config_hash": state.run.hash}
        row |= {"run_yaml": files.pop("run.yaml"), "summary": files.pop(NAME)}
        for name in TABLES:
            text = files.pop(f"{name}.csv")
            numbers = columns_of(text)
            if numbers is not None:
                tables[name].append((row["run"], numbers))
            row[name] = _described(numbers, text)
        rows.append(row | {"files": [{"name": name, "text": text} for name, text in files.items()]})
    _write(folder / RUNS, pa.Table.from_pylist(rows, _SCHEMA))
    for name, parts in tables.items():
        _write(folder / f"{name}.parquet", _joined(name, parts))
    digests = {name: digest_of(folder / name) for name in _FILES}
    write_text(folder / SEAL, json.dumps(digests, indent=2) + "\n")


def _packed_files(directory: Path) -> dict[str, str]:
    """The texts of a run's files by name, with the summary that says what is left out."""
    summary = read_summary(directory / NAME)
    digests = {name: value for name, value in summary[DIGESTS].items() if name != NAME}
    kept = [name for name in digests if Path(name).suffix in _KEPT and (directory / name).exists()]
    texts = {name: (directory / name).read_bytes().decode() for name in ("run.yaml", *kept)}
    return texts | {NAME: _archived(summary, digests, kept)}


def _archived(summary: Mapping[str, Any], digests: Mapping[str, str], kept: Sequence[str]) -> str:
    """The summary of a run without some of its files and the name of its host; that of an unpacked run as it is."""
    entries = {name: value for name, value in summary.items() if name != DIGESTS}
    if summary.get("launch"):
        entries["launch"] = {name: value for name, value in summary["launch"].items() if name != "host"}
    before = summary.get(ARCHIVED) or {"summary_sha256": summary[DIGESTS][NAME]}
    lacking = {name: value for name, value in digests.items() if name not in kept}
    entries[ARCHIVED] = before | {"left_out": left_out(summary) | lacking}
    return text_of(entries, {name: digests[name] for name in kept})


def _described(numbers: Columns | None, text: str) -> dict[str, Any]:
    if numbers is None:
        return {"columns": [], "whole": [], "rows": 0, "text": text}
    whole = [name for name in numbers.values if name in numbers.whole]
    return {"columns": list(numbers.values), "whole": whole, "rows": numbers.rows, "text": None}


def _joined(file: File, parts: Sequence[tuple[str, Columns]]) -> pa.Table:
    """The tables of several runs below each other: the run, then all columns that one of them has."""
    names = [name for name in columns(file) if any(name in part.values for _, part in parts)]
    runs = pa.array([run for run, part in parts for _ in range(part.rows)], pa.string())
    table = pa.table({"run": runs.dictionary_encode()})
    for name in names:
        whole = all(name in part.whole for _, part in parts if name in part.values and part.rows)
        cells = [cell for _, part in parts for cell in part.values.get(name, [None] * part.rows)]
        table = table.append_column(name, pa.array(cells, pa.int64() if whole else pa.float64()))
    return table


def _write(path: Path, table: pa.Table) -> None:
    with replacing(path) as file:
        parquet.write_table(table, file, compression="zstd", compression_level=19)


def _read_paper(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The folder of every run below that of its paper, with the texts of its files by name."""
    runs, *joined = _read(folder)
    offsets = dict.fromkeys(TABLES, 0)
    for row in runs.to_pylist():
        files = {"run.yaml": row["run_yaml"]} | {file["name"]: file["text"] for file in row["files"]}
        for name, table in zip(TABLES, joined, strict=True):
            described = row[name]
            part = table.slice(offsets[name], described["rows"])
            offsets[name] += described["rows"]
            values = {column: part[column].to_pylist() for column in described["columns"]}
            written = Columns(values, frozenset(described["whole"])).text()
            files[f"{name}.csv"] = written if described["text"] is None else described["text"]
        yield row["run"], files | {NAME: row["summary"]}


def _read(folder: Path) -> Iterator[pa.Table]:
    """The tables of a paper, as they were written."""
    try:
        digests = read_json(folder / SEAL)
        for name in _FILES:
            content = (folder / name).read_bytes()
            if digest(content) != digests[name]:
                raise ResultsError(f"{folder / name}: damaged: it has another SHA-256 than in {SEAL}")
            yield parquet.read_table(pa.BufferReader(content))
    except (OSError, ValueError, TypeError, KeyError) as error:
        if isinstance(error, ResultsError):
            raise
        raise ResultsError(f"{folder}: damaged: {type(error).__name__}: {error}") from None


def _require_whole(archive: Path, directory: Path) -> None:
    """Raise ResultsError unless the unpacked files of a run are those of its summary; mark it if none is left out."""
    try:
        summary = read_summary(directory / NAME)
        for name in [name for name in summary[DIGESTS] if name != NAME]:
            require_unchanged(directory / name, digest((directory / name).read_bytes()), summary)
    except (ResultsError, OSError) as error:
        raise ResultsError(f"{archive}: damaged: {error}") from None
    if not left_out(summary):
        (directory / f"{summary['config_hash']}.hash").touch()


def _require_same(run: Run, status: str, texts: Mapping[str, str], unpacked: Path) -> None:
    """Raise ResultsError unless a run came back as it was read."""
    again, directory = state_of(run, unpacked), unpacked / run.directory
    if again.status != status:
        raise ResultsError(f"{run.id}: {status}, but {again.status} when unpacked: {again.reason}")
    for name, text in texts.items():
        if (directory / name).read_bytes() != text.encode():
            raise ResultsError(f"{run.id}: {name} changed by packing")


def _copy_logs(suite: Suite, paper: str, scale: str, sources: Sequence[Path], archive: Path) -> None:
    """Published logs, which belong to no run, stand beside the runs of the scale that they are compared at."""
    for table in suite.papers[paper].logs.tables if scale == LOGS_SCALE else ():
        files = [file for source in sources if (file := file_of(source, paper, table.id)).exists()]
        if files:
            write_bytes(archive / scale / paper / "logs" / f"{table.id}.json", files[0].read_bytes())


def _name(run: Run) -> str:
    """The folder of a run below that of its paper."""
    return f"{run.experiment}/{run.series}/seed{run.seed}"

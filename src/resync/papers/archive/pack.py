"""Folders of runs in one file per paper: what training measured, to the byte.

Models, checkpoints and wandb logs are left out, and so is the name of the host; `summary.json` says so in its entry
`archived`. A run that lacks files has no `<hash>.hash` after unpacking, so that Snakemake trains it when asked for it.
"""

import json
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from resync.base.files import replacing, write_bytes, write_text
from resync.papers.archive.unpack import CHECKSUMS, RUNS, unpack
from resync.papers.audit.logs import SCALE as LOGS_SCALE
from resync.papers.importer.published_logs import file_of
from resync.papers.paper import Suite
from resync.runs.results.errors import ResultsError
from resync.runs.results.runs import RunState, state_of
from resync.runs.results.summary import (
    ARCHIVED,
    DIGESTS,
    NAME,
    digest_of,
    first_started,
    left_out,
    read_summary,
    text_of,
)
from resync.runs.run import Run

_KEPT = (".csv", ".txt")
"""The suffixes of the files of a run that are packed; those of others, as `model.pt`, are left out."""

Files = Mapping[str, bytes]
"""The files of a run by name."""


@dataclass
class Packed:
    """The runs of an archive's scale by paper, and the runs that have begun but are not in it, one line each."""

    runs: dict[str, list[Run]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(map(len, self.runs.values()))


def pack(suite: Suite, scale: str, sources: Sequence[Path], archive: Path) -> Packed:
    """Write the ended runs of a scale, each of the first folder among `sources` that has it, below `archive`."""
    packed = Packed()
    written: list[tuple[RunState, Files]] = []
    for paper in suite.papers:
        ended = list(_ended(suite.runs(paper, scale), sources, packed))
        if ended:
            # Read once: where runs go on, the workflow may write run.yaml meanwhile.
            files = [(state, _files(source / state.run.directory, began)) for state, source, began in ended]
            packed.runs[paper] = [state.run for state, _, _ in ended]
            written += files
            _write_paper(archive / scale / paper, files)
        # Published logs, which belong to no run, stand beside the runs of the scale that they are compared at.
        for table in suite.papers[paper].logs.tables if scale == LOGS_SCALE else ():
            if logs := [file for source in sources if (file := file_of(source, paper, table.id)).exists()]:
                write_bytes(archive / scale / paper / "logs" / f"{table.id}.json", logs[0].read_bytes())
    with TemporaryDirectory() as folder:
        unpack(archive, scale, Path(folder))
        for state, texts in written:
            _require_same(state, texts, Path(folder))
    return packed


def _ended(
    runs: Iterable[Run], sources: Sequence[Path], packed: Packed
) -> Iterator[tuple[RunState, Path, datetime | None]]:
    """The ended runs, where they are, and when the first one of each began."""
    for run in runs:
        states = [(state_of(run, source), source) for source in sources]
        if ended := [(state, source) for state, source in states if state.has_ended and state.result]:
            known = (first_started(state.result.summary) for state, _ in ended if state.result)
            yield *ended[0], min(filter(None, known), default=None)
        else:
            begun = [state for state, _ in states if state.status != "not run"]
            packed.left_out += [f"{run.id} ({run.scale}): {state.status}: {state.reason}" for state in begun]


def _files(directory: Path, began: datetime | None) -> Files:
    summary = read_summary(directory / NAME)
    digests = {name: value for name, value in summary[DIGESTS].items() if name != NAME}
    kept = [name for name in digests if Path(name).suffix in _KEPT and (directory / name).exists()]
    contents = {name: (directory / name).read_bytes() for name in ("run.yaml", *kept)}
    return contents | {NAME: _archived(summary, digests, kept, began).encode()}


def _archived(
    summary: Mapping[str, Any], digests: Mapping[str, str], kept: Sequence[str], began: datetime | None
) -> str:
    entries = {name: value for name, value in summary.items() if name != DIGESTS}
    if summary.get("launch"):
        entries["launch"] = {name: value for name, value in summary["launch"].items() if name != "host"}
    before = summary.get(ARCHIVED) or {"summary_sha256": summary[DIGESTS][NAME]}
    lacking = {name: value for name, value in digests.items() if name not in kept}
    entries[ARCHIVED] = before | {"left_out": left_out(summary) | lacking}
    # A training that is repeated makes no claim older than its runs.
    if began and began != first_started(summary):
        entries[ARCHIVED]["first_started"] = began.isoformat()
    return text_of(entries, {name: digests[name] for name in kept})


def _write_paper(folder: Path, runs: Iterable[tuple[RunState, Files]]) -> None:
    """Write the archive of a paper, the same bytes for the same runs: TarInfo has no time and no owner."""
    # Files of one name follow each other: they are alike, and so pack smaller.
    contents = sorted(
        (name, f"{state.run.experiment}/{state.run.series}/seed{state.run.seed}/{name}", content)
        for state, files in runs
        for name, content in files.items()
    )
    with replacing(folder / RUNS) as file, tarfile.open(fileobj=file, mode="w:xz") as tar:
        for _, path, content in contents:
            member = tarfile.TarInfo(path)
            member.size = len(content)
            tar.addfile(member, BytesIO(content))
    write_text(folder / CHECKSUMS, json.dumps({RUNS: digest_of(folder / RUNS)}, indent=2) + "\n")


def _require_same(before: RunState, files: Files, unpacked: Path) -> None:
    run, again = before.run, state_of(before.run, unpacked)
    if again.status != before.status:
        raise ResultsError(f"{run.id}: {before.status}, but {again.status} when unpacked: {again.reason}")
    for name, content in files.items():
        if (unpacked / run.directory / name).read_bytes() != content:
            raise ResultsError(f"{run.id}: {name} changed by packing")

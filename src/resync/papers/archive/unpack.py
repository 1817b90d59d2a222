"""Packed runs as folders again: what an archive of another person may write, and whether it is whole.

For every paper of a scale there are `runs.tar.xz`, with the small files of all its runs, and `sha256.json`. Nothing
outside the folders of runs is written, whatever an archive contains, and nothing at all of a paper that is damaged.
"""

import json
import lzma
import re
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from itertools import groupby
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from resync.base.errors import UserError
from resync.base.files import LARGEST, read_bytes, read_json
from resync.papers.importer.published_logs import file_of
from resync.runs.metrics.registry import SECONDS_PER_HOUR
from resync.runs.results.errors import ResultsError
from resync.runs.results.summary import DIGESTS, NAME, digest, left_out, read_summary, require_unchanged

RUNS = "runs.tar.xz"
CHECKSUMS = "sha256.json"
_MEMORY = 2**27
"""The bytes that unpacking may need beside the unpacked runs; an archive of ours needs 10 MB."""
_FILE = re.compile(r"(?:[a-z0-9][a-z0-9_]*/){2}seed\d+/(?:run\.yaml|summary\.json|[a-z0-9_]+\.(?:csv|txt))")
_HASH = re.compile(r"[0-9a-f]{16}")


def unpack(archive: Path, scale: str, results: Path, paper: str = "*") -> None:
    """Write the runs of a scale of an archive, or of a paper of it, as folders below `results`.

    Raises ResultsError for a damaged archive.
    """
    for file in sorted(archive.glob(f"{scale}/{paper}/{RUNS}")):
        target = results / scale / file.parent.name
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=target.parent) as folder:
            _extract(file, Path(folder, "runs"))
            Path(folder, "runs").rename(target)
    for file in sorted(archive.glob(f"{scale}/{paper}/logs/*.json")):
        target = file_of(results, file.parents[1].name, file.stem)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(read_bytes(file))


def scales_of(archive: Path) -> list[str]:
    """The scales of an archive; none if the folder is no archive."""
    return sorted({file.parents[1].name for file in archive.glob(f"*/*/{RUNS}")})


def archive_in(path: Path) -> Path:
    """The archive at `path`, or that in its folder `results`, as in a crate. Raises ValueError if there is none."""
    archive = next((folder for folder in (path, path / "results") if scales_of(folder)), None)
    if archive is None:
        raise UserError(f"{path}: found no archive, allowed: a folder with <scale>/<paper>/{RUNS}")
    return archive


def own_archive(results: Path, scale: str | None = None) -> Path | None:
    """The archive `reference` in a folder of results that has no run (of a scale) beside it; None if there is none."""
    archive = results / "reference"
    if any(results.glob(f"{scale or '*'}/*/*/*/seed*/summary.json")) or scale not in (None, *scales_of(archive)):
        return None
    return archive if scales_of(archive) else None


@contextmanager
def opened(path: Path, paper: str = "*") -> Iterator[Path]:
    """A folder of results for the time of the block: `path` itself, or that to which the archive in it is unpacked.

    `paper` is the one whose runs are needed; by default those of all.
    """
    if not path.is_dir():
        raise UserError(f"{path}: no such folder")
    if not any(map(scales_of, (path, path / "results"))):
        yield path
        return
    archive = archive_in(path)
    with TemporaryDirectory() as folder:
        for scale in scales_of(archive):
            Path(folder, scale).mkdir()
            unpack(archive, scale, Path(folder), paper)
            if (audit := archive / scale / "audit.json").exists():
                (Path(folder) / scale / audit.name).write_bytes(read_bytes(audit))
        yield Path(folder)


def hours_of(archive: Path, scale: str, paper: str) -> dict[str, float]:
    """The hours of the longest training of every series of a paper in an archive, `paper/experiment/series`.

    They are those of the machine that trained them. Raises ResultsError for a damaged archive.
    """
    file, hours = archive / scale / paper / RUNS, dict[str, float]()
    if not file.exists():
        return hours
    with tarfile.open(fileobj=BytesIO(_content(file)), mode="r:") as tar:
        for member in tar:
            if PurePosixPath(member.name).name == NAME and (content := tar.extractfile(member)):
                summary = json.loads(content.read())
                if not summary.get("imported"):
                    series = summary["run"].rpartition("/")[0]
                    clocks = ("training", "communication", "evaluation")
                    seconds = summary["seconds"]["wall"] or sum(summary["seconds"][clock] or 0 for clock in clocks)
                    hours[series] = max(hours.get(series, 0.0), seconds / SECONDS_PER_HOUR)
    return hours


def _extract(file: Path, into: Path) -> None:
    """Write the runs of a paper into a new folder, and check them there. Raises ResultsError."""
    try:
        with tarfile.open(fileobj=BytesIO(_content(file)), mode="r:") as tar:
            members = tar.getmembers()
            if not members:
                raise ResultsError("found no run")
            _require_files_of_runs(members)
            # Their names are checked above. `extractall` needs Python 3.11.4 to give them today's time, which Snakemake
            # compares; those of the archive have none.
            for member in members:
                path = into / member.name
                path.parent.mkdir(parents=True, exist_ok=True)
                content = tar.extractfile(member)
                assert content is not None  # only of folders and the like
                path.write_bytes(content.read())
        files = sorted(PurePosixPath(member.name) for member in members)
        for run, names in groupby(files, key=lambda file: file.parent):
            _require_whole(into / run, {file.name for file in names})
    except ResultsError as error:
        raise ResultsError(f"{file}: damaged: {str(error).replace(f'{into}/', '')}") from None
    except (OSError, ValueError, TypeError, KeyError, EOFError, lzma.LZMAError, tarfile.TarError) as error:
        raise ResultsError(f"{file}: damaged: {type(error).__name__}: {error}") from None


def _content(file: Path) -> bytes:
    """The tar archive, of which no more is unpacked than is allowed."""
    packed = read_bytes(file)
    if digest(packed) != read_json(file.with_name(CHECKSUMS))[RUNS]:
        raise ResultsError(f"it has another SHA-256 than in {CHECKSUMS}")
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, _MEMORY)
    content = unpacker.decompress(packed, LARGEST + 1)
    if len(content) > LARGEST:
        raise ResultsError(f"unpacked it has more than {LARGEST} bytes")
    if not unpacker.eof:
        raise ResultsError("it ends too early")
    return content


def _require_files_of_runs(members: Sequence[tarfile.TarInfo]) -> None:
    """Raise ResultsError unless all are plain files of runs, each once, and no larger than they can be."""
    seen: set[str] = set()
    for member in members:
        name = member.name
        if not member.isreg() or member.issparse():
            raise ResultsError(f"{name!r}: found no plain file, allowed: plain files")
        if not _FILE.fullmatch(name):
            raise ResultsError(f"{name!r}: allowed: experiment/series/seed<n>/ and run.yaml, {NAME}, *.csv or *.txt")
        if name in seen:
            raise ResultsError(f"{name!r}: twice")
        seen.add(name)


def _require_whole(directory: Path, names: set[str]) -> None:
    """Raise ResultsError unless the files of a run are those of its summary; mark the run if none is left out."""
    summary = read_summary(directory / NAME)
    listed = {"run.yaml", *summary[DIGESTS]}
    if names != listed:
        raise ResultsError(f"{directory}: has {', '.join(sorted(names))}, by its summary {', '.join(sorted(listed))}")
    for name in listed - {"run.yaml", NAME}:
        require_unchanged(directory / name, digest((directory / name).read_bytes()), summary)
    if not _HASH.fullmatch(summary["config_hash"]):
        raise ResultsError(f"{directory / NAME}: config_hash: found {summary['config_hash']!r}, allowed: 16 hex digits")
    if not left_out(summary):
        (directory / f"{summary['config_hash']}.hash").touch()

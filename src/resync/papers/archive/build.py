"""An archive with what is drawn from it: runs, environment and audits in one folder, figures in another."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from resync.base.errors import UserError
from resync.base.files import delete_folder, write_bytes, write_text
from resync.papers.archive.certificates import CERTIFICATES, Certificates, standing
from resync.papers.archive.environment import environment
from resync.papers.archive.pack import Packed, pack
from resync.papers.archive.redraw import FIGURES, RESULTS, Drawn, redraw
from resync.papers.paper import Suite
from resync.runs.results.summary import NAME, read_summary

ENVIRONMENT = "environment.json"
_AUDIT = "audit.json"
_KEPT = (".png", ".svg", ".csv", ".md", ".tex")
"""The suffixes of what is kept of figures and tables. A PDF shows nothing else, and its bytes depend on the zlib of the
machine.
"""


@dataclass(frozen=True)
class ArchiveFolders:
    """The folders of an archive and of its figures, each with a folder per scale."""

    archive: Path
    figures: Path

    def kept(self, scale: str) -> set[Path]:
        audits = {Path(_AUDIT)} if (self.archive / scale / _AUDIT).exists() else set()
        drawn = (file for file in (self.figures / scale).rglob("*.*") if file.suffix in _KEPT)
        return audits | {file.relative_to(self.figures / scale) for file in drawn}

    def path(self, scale: str, file: Path) -> Path:
        return (self.archive if file.name == _AUDIT else self.figures) / scale / file


def drawn_place(into: Path) -> ArchiveFolders:
    """The folders in which `redraw` draws."""
    return ArchiveFolders(into / RESULTS, into / FIGURES)


def replace_folder(target: Path, source: Path) -> None:
    """Copy a folder to another name, under which it appears as a whole, instead of what was there."""
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(source, partial)
    if target.exists():
        delete_folder(target)
    partial.rename(target)


def build(
    suite: Suite, scale: str, sources: Sequence[Path], place: ArchiveFolders, certificates: Certificates | None = None
) -> tuple[Packed, Drawn]:
    """Pack the ended runs of a scale into new folders, and keep there what is drawn from the packed runs.

    Of `certificates`, those of packed runs are kept. Raises ValueError if no run has ended.
    """
    packed = pack(suite, scale, sources, place.archive)
    if not packed.count:
        raise UserError(f"{sources[0] / scale}: found no run that has ended, allowed: at least one")
    with TemporaryDirectory() as folder:
        into = Path(folder)
        drawn = redraw(suite, scale, place.archive, into)
        scratch = drawn_place(into)
        for file in scratch.kept(scale):
            write_bytes(place.path(scale, file), scratch.path(scale, file).read_bytes())
        runs = [run for runs in packed.runs.values() for run in runs]
        summaries = [read_summary(scratch.archive / run.directory / NAME) for run in runs]
        kept = standing(certificates or {}, summaries)
    for name, content in {ENVIRONMENT: environment(summaries, kept), CERTIFICATES: kept}.items():
        if content:
            write_text(place.archive / scale / name, json.dumps(content, indent=2) + "\n")
    return packed, drawn

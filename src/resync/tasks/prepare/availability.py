"""Where a data set is: prepared, as originals or nowhere, and the command that gets it. No file is read."""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from resync.tasks.data_sets.declaration import DataSet, data_set
from resync.tasks.prepare.folders import DATA_ROOT, prepared_folder
from resync.tasks.prepare.raw_text import ARCHIVES
from resync.tasks.prepare.sources import places_of

_RECORDS = ".json", ".beton.json"
"""Ends of the names of the records of a data set, which a conversion writes last."""


@dataclass(frozen=True)
class Availability:
    """`found` says where a data set is, or where it was looked for; `remedy`, of a missing one, how to get it."""

    found: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.found} -> {self.remedy}" if self.remedy else self.found


def availability(of: DataSet) -> Availability:
    """Where the data set is for runs that are started in this environment."""
    folder = os.environ.get(DATA_ROOT)
    if not folder:
        return Availability(f"{DATA_ROOT} is not set", f"export {DATA_ROOT}=FOLDER; {_remedy(of)}")
    root = Path(folder)
    if not root.is_dir():
        return Availability(f"{DATA_ROOT}={root}: no such folder", f"mkdir -p ${DATA_ROOT}; {_remedy(of)}")
    prepared = prepared_folder(root)
    if any((prepared / f"{of.name}{end}").is_file() for end in _RECORDS):
        return Availability("prepared")
    original, looked_for = _original(of, root)
    if original:
        return Availability(f"{original}, which the workflow prepares before the first run")
    found = f"not prepared in {prepared}; originals not found at {', '.join(map(str, looked_for))}"
    return Availability(found, _remedy(of))


def missing_of(names: Iterable[str]) -> dict[str, Availability]:
    """Those of these data sets that are missing."""
    by_name = {name: availability(data_set(name)) for name in sorted(set(names))}
    return {name: where for name, where in by_name.items() if where.remedy}


def missing(names: Iterable[str]) -> Iterator[str]:
    """A line for each of these data sets that is missing: where it was looked for, and the command that gets it."""
    return (f"data {name} missing: {where}" for name, where in missing_of(names).items())


def download(of: DataSet) -> Availability:
    """Get a missing data set by the command that its declaration has; where it is then."""
    before = availability(of)
    if DATA_ROOT in before.remedy:
        path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
        subprocess.run(["bash", "-ec", before.remedy], env=os.environ | {"PATH": path}, check=False)
        return availability(of)
    return before


def _original(of: DataSet, root: Path) -> tuple[Path | None, list[Path]]:
    if of.preparation:
        places = [place for source in of.preparation.sources for place in places_of(source, root)]
        if of.preparation.streaming:  # from image files, never from an archive
            places = [(evidence, path) for evidence, path in places if evidence != path]
        return next((path for evidence, path in places if evidence.exists()), None), [place for place, _ in places]
    if of.characters:
        files = [root / of.characters.folder / name for name in of.characters.files]
        return next((file for file in files if file.is_file()), None), files
    assert of.text
    folder, pairs = root / of.text.folder, (*of.text.train, *of.text.val, *of.text.test)
    files = list(dict.fromkeys(_file(folder, name) for pair in pairs for name in (pair.source, pair.target)))
    absent = [file for file in files if not file.is_file()]
    return (None if absent else folder), absent


def _file(folder: Path, name: str) -> Path:
    path = folder / name
    if path.is_file():
        return path
    return next((parent for parent in path.parents if parent.name.endswith(ARCHIVES)), path)


def _remedy(of: DataSet) -> str:
    if of.download:
        return of.download
    sources = of.preparation.sources if of.preparation else []
    known = next((source.torchvision for source in sources if source.torchvision), None)
    if known is None:
        return "see docs/data.md"
    return f"python -c \"from torchvision.datasets import {known}; {known}('${DATA_ROOT}', download=True)\""

"""Image sets that training reads from disk: as the original files in place, or packed by FFCV."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from resync.config.data_sets import DataSet
from resync.prepare import beton
from resync.prepare.listing import Listing, arrays_of, load_listing, scan, unchanged
from resync.prepare.prepared_file import Split, counts, file_sha256, load_record, missing, prepared_file, write
from resync.prepare.properties import Property, split_properties, variant
from resync.prepare.sources import find


@dataclass(frozen=True)
class Stream:
    """The splits `train` and `val` of a prepared data set, and its record."""

    splits: Mapping[str, Split]
    record: Mapping[str, Any]


def chosen(of: DataSet, format: str) -> str:
    """`beton` or `files`, with `auto` resolved. Raises ValueError for `beton` if FFCV is not installed."""
    if format == "auto":
        return "beton" if beton.installed() else "files"
    if format == "beton":
        beton.require_ffcv(of, "format beton needs", "; or allow another one with format: auto")
    return format


def prepare_stream(of: DataSet, root: Path, format: str) -> dict[str, Any]:
    """Make the data set in this format, unless it exists already, and return its record.

    `files` needs a list of the image files; `beton` also needs FFCV's .beton files, which are made from them. Raises
    ValueError if there is no source, or if its images are damaged or do not match the declaration.
    """
    format = chosen(of, format)
    listed = load_record(of, root) or _list(of, root)
    if format == "files":
        return listed
    content = _content(listed)
    return beton.load_record(of, root, content) or beton.prepare(of, root, listed, content, _listing(of, root, listed))


def load_stream(of: DataSet, root: Path, format: str) -> Stream:
    """The data set in this format. Raises ValueError if it is missing or damaged, or needs FFCV without having it."""
    format = chosen(of, format)
    listed = load_record(of, root)
    if listed is None:
        raise missing(of, prepared_file(of, root), f"--format {format} ")
    if format == "files":
        return Stream(_listing(of, root, listed), listed)
    record = beton.load_record(of, root, _content(listed))
    if record is None:
        raise missing(of, beton.record_file(of, root), f"--format {format} ")
    return Stream(beton.load(of, root, record), record)


def check_stream(of: DataSet, root: Path, format: str) -> list[Property]:
    """The properties of the data set in this format. Raises ValueError as `load_stream` does."""
    stream = load_stream(of, root, format)
    found = [variant(of, stream.record), *split_properties(of, stream.splits)]
    if chosen(of, format) == "beton":
        return [*found, *beton.properties(of, root, stream.record)]
    sha256 = Property("sha256", file_sha256(prepared_file(of, root)), (stream.record["sha256"],))
    return [*found, *unchanged(_listing(of, root, stream.record)), sha256]


def _list(of: DataSet, root: Path) -> dict[str, Any]:
    original = find(of, root)
    listing = scan(original)
    origin = {
        "variant": of.variant_of(original.source.variant),
        "source": original.path.relative_to(root).as_posix(),
        "versions": {package: version(package) for package in ("numpy", "pillow")},
    }
    return write(of, root, arrays_of(listing), origin, counts(of))


def _listing(of: DataSet, root: Path, listed: Mapping[str, Any]) -> Listing:
    return load_listing(of, prepared_file(of, root), root / listed["source"])


def _content(listed: Mapping[str, Any]) -> dict[str, str]:
    """The origin of .beton files: the list of image files, by its SHA-256."""
    return {"listing": listed["sha256"]}

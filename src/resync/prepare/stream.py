"""Image sets that training reads from disk: as files where they lie, or packed by FFCV."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from resync.config.components import Component
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


def chosen(of: Component, loader: str) -> str:
    """The loader `ffcv` or `torch` that is meant. Raises ValueError where it is `ffcv` and FFCV is not installed."""
    if loader == "auto":
        return "ffcv" if beton.installed() else "torch"
    if loader == "ffcv":
        beton.require_ffcv(of, "loader ffcv needs", "; or allow another one with loader: auto")
    return loader


def prepare_stream(of: Component, root: Path, loader: str) -> dict[str, Any]:
    """Make what a loader reads, if it is not there, and return its record.

    For torch it is a list of the image files, for FFCV the .beton files that are made from them. Raises ValueError
    where no source is there, or its images are damaged or not what the declaration says.
    """
    loader = chosen(of, loader)
    listed = load_record(of, root) or _list(of, root)
    if loader == "torch":
        return listed
    content = _content(listed)
    return beton.load_record(of, root, content) or beton.prepare(of, root, listed, content, _listing(of, root, listed))


def load_stream(of: Component, root: Path, loader: str) -> Stream:
    """What a loader reads. Raises ValueError where it is missing, damaged, or FFCV is chosen and not installed."""
    loader = chosen(of, loader)
    listed = load_record(of, root)
    if listed is None:
        raise missing(of, prepared_file(of, root), f"--loader {loader} ")
    if loader == "torch":
        return Stream(_listing(of, root, listed), listed)
    record = beton.load_record(of, root, _content(listed))
    if record is None:
        raise missing(of, beton.record_file(of, root), f"--loader {loader} ")
    return Stream(beton.load(of, root, record), record)


def check_stream(of: Component, root: Path, loader: str) -> list[Property]:
    """The properties of what a loader reads. Raises ValueError as `load_stream` does."""
    stream = load_stream(of, root, loader)
    found = [variant(of, stream.record), *split_properties(of, stream.splits)]
    if chosen(of, loader) == "ffcv":
        return [*found, *beton.properties(of, root, stream.record)]
    sha256 = Property("sha256", file_sha256(prepared_file(of, root)), (stream.record["sha256"],))
    return [*found, *unchanged(_listing(of, root, stream.record)), sha256]


def _list(of: Component, root: Path) -> dict[str, Any]:
    original = find(of, root)
    listing = scan(original)
    origin = {
        "variant": of.variant_of(original.source.variant),
        "source": original.path.relative_to(root).as_posix(),
        "versions": {package: version(package) for package in ("numpy", "pillow")},
    }
    return write(of, root, arrays_of(listing), origin, counts(of))


def _listing(of: Component, root: Path, listed: Mapping[str, Any]) -> Listing:
    return load_listing(of, prepared_file(of, root), root / listed["source"])


def _content(listed: Mapping[str, Any]) -> dict[str, str]:
    """What .beton files are made from: the list, by its SHA-256."""
    return {"listing": listed["sha256"]}

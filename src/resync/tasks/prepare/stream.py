"""Image sets that training reads from disk: as the original files in place, or packed by FFCV."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resync.tasks.data_sets.declaration import DataSet
from resync.tasks.prepare import beton
from resync.tasks.prepare.folders import prepared_file, require_writable
from resync.tasks.prepare.listing import arrays_of, load_listing, refuse_changed, scan, unchanged
from resync.tasks.prepare.prepared_file import Split, counts, file_sha256, load_record, origin_of, write
from resync.tasks.prepare.properties import Property, split_properties, variant
from resync.tasks.prepare.record import missing
from resync.tasks.prepare.sources import find


@dataclass(frozen=True)
class Stream:
    """The splits `train` and `val` of a prepared data set, its record, and what of it is `verified` (see `Dataset`)."""

    splits: Mapping[str, Split]
    record: Mapping[str, Any]
    verified: str


def choose_format(of: DataSet, format: str) -> str:
    """`beton` or `files`, with `auto` resolved. Raises ValueError for `beton` if FFCV is not installed."""
    if format == "auto":
        return "beton" if beton.installed() else "files"
    if format == "beton" and not beton.installed():
        how = "pip install ffcv==1.0.2, after the libraries that docs/data.md names"
        raise of.error(f"format beton needs FFCV: {how}; or allow another one with format: auto")
    return format


def prepare_stream(of: DataSet, root: Path, format: str) -> dict[str, Any]:
    """Make the data set in this format, unless it exists already, and return its record.

    `files` needs a list of the image files; `beton` also needs FFCV's .beton files, which are made from them. Raises
    ValueError if there is no source, or if its images are damaged or do not match the declaration.
    """
    format = choose_format(of, format)
    listed = load_record(of, root) or _list(of, root)
    if format == "files":
        return listed
    content = {"listing": listed["sha256"]}
    packed = beton.load_record(of, root, content)
    return packed or beton.prepare(of, root, listed, content, load_listing(of, root)[0])


def load_stream(of: DataSet, root: Path, format: str) -> Stream:
    """The data set in this format, after a look at parts of its files."""
    format = choose_format(of, format)
    if format == "beton":
        return _load_packed(of, root)
    _require_listed(of, root, format)
    listing, listed = load_listing(of, root)
    refuse_changed(of, listing)
    return Stream(listing, listed, "list")


def check_stream(of: DataSet, root: Path, format: str) -> list[Property]:
    """The properties of the data set in this format, of whole files. Raises ValueError if it cannot be read."""
    if choose_format(of, format) == "beton":
        packed = _load_packed(of, root)
        of_files = beton.properties(of, root, packed.record)
        return [variant(of, packed.record), *split_properties(of, packed.splits), *of_files]
    _require_listed(of, root, "files")
    listing, listed = load_listing(of, root, verified=False)
    sha256 = Property("sha256", file_sha256(prepared_file(of, root)), (listed["sha256"],))
    return [variant(of, listed), *split_properties(of, listing), *unchanged(listing), sha256]


def _list(of: DataSet, root: Path) -> dict[str, Any]:
    require_writable(of, root)
    original = find(of, root)
    listing = scan(original)
    variant, source = of.variant_of(original.source.variant), original.path.relative_to(root)
    origin = origin_of(variant, source, None, "numpy", "pillow")
    return write(of, root, arrays_of(listing), origin, counts(of))


def _require_listed(of: DataSet, root: Path, format: str) -> dict[str, Any]:
    listed = load_record(of, root)
    if listed is None:
        raise missing(of, prepared_file(of, root), f" --format {format}")
    return listed


def _load_packed(of: DataSet, root: Path) -> Stream:
    listed = _require_listed(of, root, "beton")
    record = beton.load_record(of, root, {"listing": listed["sha256"]})
    if record is None:
        raise missing(of, beton.record_file(of, root), " --format beton")
    return Stream(beton.load(of, root, record), record, "sample")

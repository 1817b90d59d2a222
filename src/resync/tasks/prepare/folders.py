"""The folders of original and of prepared data."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

from resync.base.processes.lock import alone
from resync.tasks.data_sets.declaration import DataSet

DATA_ROOT = "RESYNC_DATA"
"""The environment variable that names the folder of all data."""

PREPARED_FOLDER = "RESYNC_PREPARED"
"""The environment variable that names the folder of prepared data; without it, `prepared` in the folder of all data."""


def data_root(of: DataSet) -> Path:
    """The folder that RESYNC_DATA names. Raises ValueError if it names none."""
    folder = os.environ.get(DATA_ROOT)
    if not folder:
        raise of.error(f"{DATA_ROOT} is not set, allowed: the folder of the data (docs/data.md)")
    if not Path(folder).is_dir():
        raise of.error(f"{DATA_ROOT}={folder}: no such folder")
    return Path(folder)


def prepared_file(of: DataSet, root: Path) -> Path:
    """The path of the prepared data set, whose original is below `root`."""
    return prepared_folder(root) / f"{of.name}.npz"


def require_writable(of: DataSet, root: Path) -> None:
    """Raise ValueError if nothing can be written where prepared data are: to convert first takes up to hours."""
    folder = prepared_folder(root)
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    try:
        # The rights of a folder do not tell: a file system may be read-only, or a server refuse.
        with TemporaryFile(dir=there):
            pass
    except OSError as error:
        found = f"{folder}: prepared data cannot be written here ({error.strerror})"
        raise of.error(f"{found}, allowed: another folder, named by {PREPARED_FOLDER} (docs/data.md)") from error


@contextmanager
def converting(of: DataSet, root: Path) -> Iterator[None]:
    """Let no other process convert this data set within the block; before, wait until the one that does has ended."""
    folder = prepared_folder(root)
    with ExitStack() as held:
        held.callback(_delete_if_empty, folder)
        # Where nothing can be written nobody converts anything, and `require_writable` says so.
        with suppress(OSError):
            held.enter_context(alone(folder / f".{of.name}.lock", f"the process that converts {of.name}"))
        yield


def _delete_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def prepared_folder(root: Path) -> Path:
    """The folder of prepared data, whose originals are below `root`."""
    return Path(os.environ.get(PREPARED_FOLDER) or root / "prepared")

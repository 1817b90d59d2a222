"""Files that appear under their final name only once they are complete, and folders that vanish as a whole."""

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from resync.errors import UserError

_SUFFIX = ".tmp"
_DELETED = ".deleted"


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file that replaces `path` at the end of the block, after fsync: readers see the old file or the new one.

    It has the permissions that the umask gives to a new file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{_SUFFIX}")
    # Not tempfile's, which nobody else may read whatever the umask is.
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the names in `folder` are on disk: after a power loss, a file without its name would be lost."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def delete_folder(folder: Path) -> None:
    """Delete `folder`, which loses its name first: a process killed meanwhile leaves no half of it under that name."""
    aside = folder.with_name(folder.name + _DELETED)
    shutil.rmtree(aside, ignore_errors=True)
    folder.rename(aside)
    shutil.rmtree(aside)


def clear_leftovers(directory: Path) -> None:
    """Delete what processes killed within `replacing` and `delete_folder` left; nobody may be writing there."""
    for leftover in directory.glob(f".*{_SUFFIX}"):
        leftover.unlink(missing_ok=True)
    for leftover in directory.glob(f"*{_DELETED}"):
        shutil.rmtree(leftover, ignore_errors=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path` by way of `replacing`."""
    with replacing(path) as file:
        file.write(content)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` in UTF-8, as `write_bytes` does."""
    write_bytes(path, text.encode())


def read_json(path: Path) -> Any:
    """The content of a JSON file; NaN and infinities are not JSON.

    Raises ValueError with one line that names the file, and OSError if there is none.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        raise UserError(f"{path}: not text: damaged") from None
    except RecursionError:
        raise UserError(f"{path}: not a file of this program: nested too deeply") from None
    except ValueError as error:
        raise UserError(f"{path}: not JSON, half-written? ({error})") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"found {name}")

"""Files that appear under their final name only once they are complete, and folders that vanish as a whole."""

import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from resync.base.errors import UserError

LARGEST = 2**30
"""The bytes that a file of results or a log may have."""
_SUFFIX = ".tmp"
_DELETED = ".deleted"


@contextmanager
def replacing(path: Path, lasting: bool = True) -> Iterator[BinaryIO]:
    """A new file that replaces `path` at the end of the block: readers see the old file or the new one.

    With `lasting`, the content is on disk before the name, and this at the end of the block: without, a loss of power
    may leave any part of the file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{_SUFFIX}")
    # Not tempfile's, which nobody else may read whatever the umask is.
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            if lasting:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            raise OSError(error.errno, error.strerror, str(path)) from error  # a full disk names no file
        raise
    if lasting:
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
    remove(aside)
    folder.rename(aside)
    remove(aside)


def remove(path: Path) -> None:
    """Delete a folder, or a file or link in its place, but not what the link leads to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def files_below(folder: Path) -> Iterator[Path]:
    """All files below a folder and in the folders that links lead to, also links to nothing, sorted within a folder.

    A link to a folder that it is in is not followed. What is neither, such as a pipe, is left out.
    """
    return _files_below(folder, frozenset())


def _files_below(folder: Path, above: frozenset[tuple[int, int]]) -> Iterator[Path]:
    state = folder.stat()
    here = state.st_dev, state.st_ino
    if here in above:
        return
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    for entry in listed:
        path = folder / entry.name
        if entry.is_dir():
            yield from _files_below(path, above | {here})
        elif entry.is_file() or not path.exists():
            yield path


def clear_leftovers(directory: Path) -> None:
    """Delete what processes killed within `replacing` and `delete_folder` left; nobody may be writing there."""
    for pattern in (f".*{_SUFFIX}", f"*{_DELETED}"):
        for leftover in directory.glob(pattern):
            remove(leftover)


def write_bytes(path: Path, content: bytes, lasting: bool = True) -> None:
    """Write `content` to `path` by way of `replacing`."""
    with replacing(path, lasting) as file:
        file.write(content)


def write_text(path: Path, text: str, lasting: bool = True) -> None:
    """Write `text` to `path` in UTF-8, as `write_bytes` does."""
    write_bytes(path, text.encode(), lasting)


def open_regular(path: Path) -> BufferedReader:
    """A file opened for reading. Raises UserError for a pipe or a device, which may have no end, and OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # would wait for a pipe's writer otherwise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UserError(f"{path}: not a regular file")
    return open(handle, "rb")


def read_bytes(path: Path) -> bytes:
    """The content of a file of at most `LARGEST` bytes that somebody else may have made; raises as `open_regular`."""
    with open_regular(path) as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise UserError(f"{path}: has more than {LARGEST} bytes")
    return content


def text_of(content: bytes) -> str:
    """UTF-8 without a byte order mark, which would belong to the first word. Raises UnicodeDecodeError."""
    return content.decode("utf-8-sig")


def lines_of(text: str) -> list[str]:
    """The lines of a text, which end with LF or CR LF only.

    `str.splitlines` also ends lines at characters that occur within texts, such as U+0085, U+2028 and form feeds.
    """
    lines = text.split("\n")
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]


def read_json(path: Path) -> Any:
    """The content of a JSON file; NaN and infinities are not JSON.

    Raises ValueError with one line that names the file, and OSError if there is none.
    """
    content = read_bytes(path)
    try:
        value = json.loads(text_of(content), parse_constant=_refuse_constant)
        if b"\\ud" in content.lower():
            json.dumps(value, ensure_ascii=False).encode()  # a half of a pair, which no page could hold
        return value
    except UnicodeDecodeError:
        raise UserError(f"{path}: not text: damaged") from None
    except RecursionError:
        raise UserError(f"{path}: not a file of this program: nested too deeply") from None
    except ValueError as error:
        raise UserError(f"{path}: not JSON, half-written? ({error})") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"found {name}")

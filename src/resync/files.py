"""Files that appear under their name only when they are complete."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_SUFFIX = ".tmp"


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file that becomes `path` at the end of the block, after fsync: a reader sees the old file or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=_SUFFIX)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def clear_leftovers(directory: Path) -> None:
    """Delete what processes that were killed within `replacing` have left in `directory`, where nobody writes now."""
    for leftover in directory.glob(f".*{_SUFFIX}"):
        leftover.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path` as `replacing` does."""
    with replacing(path) as file:
        file.write(content)


def write_text(path: Path, text: str) -> None:
    """`write_bytes` for text in UTF-8."""
    write_bytes(path, text.encode())

"""The original files of a parallel corpus: lines of plain text, compressed or in archives, and the SGML of WMT."""

import gzip
import hashlib
import lzma
import re
import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from resync.base.errors import UserError
from resync.base.files import text_of
from resync.tasks.data_sets.declaration import DataSet
from resync.tasks.data_sets.preparation import TextFiles
from resync.tasks.prepare.prepared_file import file_sha256, sums_sha256
from resync.tasks.prepare.text import SPLITS, Lines, normalise

ARCHIVES = (".tgz", ".tar.gz", ".tar")
SEGMENT = re.compile(r"<seg[^>]*>(.*?)</seg>", re.DOTALL | re.IGNORECASE)


class RawText:
    """The original files of the data set `of` below `root`.

    Raises ValueError if the folder or a file is missing, a file is damaged or not UTF-8, two files have different
    numbers of lines, or a sentence is empty and not left out.
    """

    def __init__(self, of: DataSet, root: Path) -> None:
        assert of.text
        self.of = of
        self.text = of.text
        self.folder = root / of.text.folder
        if not self.folder.is_dir():
            raise self.error("no such folder (docs/data.md)")
        self._read: set[Path] = set()

    def lines(self) -> dict[str, Lines]:
        may_be_empty = {"train": self.text.max_ratio is not None}
        lines = {split: self._split(getattr(self.text, split), may_be_empty.get(split, False)) for split in SPLITS}
        if self.text.sha256:
            digest = hashlib.sha256()
            for side in (side for split in SPLITS for side in lines[split]):
                digest.update("".join(f"{line}\n" for line in side).encode())
            if (found := digest.hexdigest()) != self.text.sha256:
                raise self.error(f"SHA-256 of the sentences: found {found}, allowed: {self.text.sha256}, that declared")
        return lines

    def sha256(self) -> str:
        """SHA-256 of the output of `sha256sum` for the files that were read, in the order of their names."""
        files = sorted(self._read)
        return sums_sha256((file_sha256(path), path.relative_to(self.folder).as_posix()) for path in files)

    def _split(self, files: Iterable[TextFiles], may_be_empty: bool) -> Lines:
        result: Lines = ([], [])
        for pair in files:
            names = pair.source, pair.target
            sides = [self._sentences(name) for name in names]
            if len(sides[0]) != len(sides[1]):
                found = " and ".join(f"{len(side)} in {name}" for side, name in zip(sides, names, strict=True))
                raise self.error(f"found {found}, allowed: the same number of sentences in both")
            for name, side, whole in zip(names, sides, result, strict=True):
                if not may_be_empty and "" in side:
                    raise self.error(f"sentence {side.index('') + 1} is empty", self.folder / name)
                whole += side
        return result

    def _sentences(self, name: str) -> list[str]:
        content = self._content(name)
        try:
            text = text_of(content)
        except UnicodeDecodeError as error:
            number = content.count(b"\n", 0, error.start) + 1
            raise self.error(f"line {number} is not UTF-8", self.folder / name) from error
        if ".sgm" in Path(name).suffixes:
            return [normalise(segment) for segment in SEGMENT.findall(text)]
        # Not splitlines: it also splits at characters that occur within sentences of Common Crawl.
        return [normalise(line) for line in text.removesuffix("\n").split("\n")]

    def _content(self, name: str) -> bytes:
        """The bytes of a file below the folder, uncompressed; a part of its path may be an archive."""
        path = self.folder / name
        for file in (path, *path.parents):
            if file.is_file():
                break
            if file == self.folder:
                raise self.error("no such file (docs/data.md)", path)
        self._read.add(file)
        try:
            if file != path or file.name.endswith(ARCHIVES):
                return self._member(file, path.relative_to(file).as_posix())
            return gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        except (OSError, EOFError, zlib.error, lzma.LZMAError, KeyError, tarfile.TarError) as error:
            raise self.error(f"damaged or incomplete ({error})", file) from error

    def _member(self, archive: Path, name: str) -> bytes:
        with tarfile.open(archive) as members:
            for member in members:
                if member.name.removeprefix("./") == name and (file := members.extractfile(member)):
                    return file.read()
        raise self.error(f"has no file {name}", archive)

    def error(self, found: str, path: Path | None = None) -> UserError:
        return self.of.error(f"{path or self.folder}: {found}")

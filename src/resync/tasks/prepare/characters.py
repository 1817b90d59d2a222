"""A text as characters: the original file, the alphabet, and the ids of its training and validation part."""

import gzip
import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resync.tasks.data_sets.declaration import DataSet
from resync.tasks.prepare.properties import Property, require_all


@dataclass(frozen=True)
class CharacterText:
    """The training and the validation part of a text: uint16 ids, the places of the characters in `alphabet`."""

    train: NDArray[np.uint16]
    val: NDArray[np.uint16]
    alphabet: str

    def arrays(self) -> dict[str, NDArray[Any]]:
        alphabet = np.frombuffer(self.alphabet.encode(), np.uint8)
        return {"train": self.train, "val": self.val, "alphabet": alphabet}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "CharacterText":
        return cls(arrays["train"], arrays["val"], arrays["alphabet"].tobytes().decode())


def divide(of: DataSet, text: str) -> CharacterText:
    """The declared number of first characters for training, the others for validation; ids in code point order."""
    alphabet = "".join(sorted(set(text)))
    checked = character_properties(of, len(text), len(alphabet))
    require_all(checked, of.error)
    ids = np.searchsorted(np.array(list(alphabet)), np.array(list(text))).astype(np.uint16)
    train, val = np.split(ids, [of.facts["train_samples"]])
    return CharacterText(train, val, alphabet)


def original(of: DataSet, root: Path) -> tuple[Path, str]:
    """The original file below `root` and its text."""
    assert of.characters
    folder = root / of.characters.folder
    file = next((folder / name for name in of.characters.files if (folder / name).is_file()), None)
    if file is None:
        names = " or ".join(of.characters.files)
        raise of.error(f"{folder}: no file {names} (docs/data.md)")
    try:
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        text = content.decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise of.error(f"{file}: damaged or not UTF-8 ({error})") from error
    found = hashlib.sha256(content).hexdigest()
    if found != of.characters.sha256:
        raise of.error(f"{file}: SHA-256 of the text: found {found}, allowed: {of.characters.sha256}, that declared")
    return file, text


def character_properties(of: DataSet, length: int, alphabet: int) -> list[Property]:
    """The declared numbers of characters, in all and different ones."""
    characters = of.facts["train_samples"] + of.facts["val_samples"]
    return [
        Property("characters", str(length), (str(characters),)),
        Property("different characters", str(alphabet), (str(of.facts["num_classes"]),)),
    ]

"""The device under test, and data that need no package: these tests run where nothing can be installed.

RESYNC_TEST_DEVICE=cpu runs the same code without a GPU; what is compared with the CPU is the CPU then.
"""

import os
from collections.abc import Iterator
from zlib import crc32

import numpy as np
import pytest
import torch

from resync.tasks.data import sentences
from resync.tasks.data.memory import InMemory
from resync.tasks.data.text import END
from resync.tasks.prepare.text import Sentences

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before CUDA starts: the same sums in the same order

SAMPLES = 1437, 360
DEVICE = os.environ.get("RESYNC_TEST_DEVICE", "cuda")


@pytest.fixture(scope="session")
def device() -> torch.device:
    if DEVICE == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    return torch.device(DEVICE)


@pytest.fixture(autouse=True)
def _exact_and_the_same_again() -> Iterator[None]:
    """Full float32 products, and operations that add in a fixed order; whatever a test changes of that is undone."""
    products = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [each.allow_tf32 for each in products], torch.backends.cudnn.deterministic
    for each in products:
        each.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    yield
    for each, allowed in zip(products, before[0], strict=True):
        each.allow_tf32 = allowed
    torch.backends.cudnn.deterministic = before[1]


@pytest.fixture(autouse=True)
def _synthetic_data(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("resync.tasks.data.digits.build", _digits)
    monkeypatch.setattr("resync.tasks.prepare.text.Vocabulary", Words)
    monkeypatch.setattr(Sentences, "encode", _words)
    _forget_text()
    yield
    _forget_text()


def _forget_text() -> None:
    """The module keeps its text, which is another one here than in other tests."""
    for each in vars(sentences).values():
        if hasattr(each, "cache_clear"):
            each.cache_clear()


def _digits() -> InMemory:
    """As many images of as many classes as the digits have: a pattern per class, and noise."""
    generator = np.random.default_rng(0)
    targets = generator.integers(10, size=sum(SAMPLES))
    images = generator.normal(size=(10, 1, 8, 8))[targets] + generator.normal(size=(sum(SAMPLES), 1, 8, 8))
    (train, val), (labels, val_labels) = (
        torch.from_numpy(array).split(SAMPLES) for array in (images.astype(np.float32), targets)
    )
    return InMemory(train, labels, val, val_labels, "synthetic", "0" * 64)


class Words:
    """A vocabulary of whole words, in place of sentencepiece's."""

    model = b""

    @classmethod
    def train(cls, sentences: object, size: int) -> "Words":
        return cls()

    def decode(self, ids: list[int]) -> str:
        return " ".join(map(str, ids))


def _words(lines: list[str], vocabulary: Words, progress: str) -> Sentences:
    """In place of Sentences.encode."""
    ids = [[*(4 + crc32(word.encode()) % 252 for word in line.split()), END] for line in lines]
    return Sentences(np.concatenate(ids).astype(np.uint16), np.array([len(each) for each in ids]))

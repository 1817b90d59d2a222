"""Where data sets are, where they were looked for, and the commands that get them."""

import shlex
from pathlib import Path

import pytest

from resync.tasks.data_sets.declaration import data_set, prepared_names
from resync.tasks.prepare.availability import availability, missing


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of all data without any."""
    monkeypatch.setenv("RESYNC_DATA", str(tmp_path))
    monkeypatch.delenv("RESYNC_PREPARED", raising=False)
    return tmp_path


def write(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


@pytest.mark.parametrize(
    ("name", "files", "found"),
    [
        ("mnist_14", ["prepared/mnist_14.npz", "prepared/mnist_14.json"], "prepared"),
        ("imagenet1k", ["prepared/imagenet1k.beton.json"], "prepared"),
        ("imagenet1k", ["prepared/imagenet1k.beton/train-000.partial"], "not prepared in {root}/prepared; "),
        ("mnist_14", ["mnist-png/train/0/1.png"], "{root}/mnist-png, which the workflow prepares"),
        ("mnist_14", ["mnist-png.tar.gz"], "originals not found at {root}/MNIST/raw, "),
        ("mnist_14", ["mnist-png/mnist-png.tar.gz"], "{root}/mnist-png/mnist-png.tar.gz, which"),
        ("shakespeare_char", ["shakespeare-char/input.txt"], "{root}/shakespeare-char/input.txt, which"),
        # Every file of a parallel text is needed, and an archive stands for its files.
        ("multi30k_en_de", ["multi30k-en-de/train.en.gz"], "found at {root}/multi30k-en-de/train.de.gz, "),
        ("wmt16_en_de", ["wmt16-en-de/dev.tgz"], "/training-parallel-nc-v11.tgz, {root}/wmt16-en-de/test-full.tgz"),
        # ImageNet is read from its files, and not from an archive.
        ("imagenet1k", ["imagenet/imagenet.tar.gz"], "originals not found at {root}/imagenet/train"),
    ],
)
def test_what_is_found_or_was_looked_for_is_said(name: str, files: list[str], found: str, root: Path):
    write(root, *files)
    where = availability(data_set(name))
    assert found.format(root=root) in where.found
    assert bool(where.remedy) == ("not found" in where.found)


def test_prepared_data_may_be_elsewhere(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RESYNC_PREPARED", str(root / "elsewhere"))
    assert f"not prepared in {root}/elsewhere;" in availability(data_set("cifar10")).found
    write(root, "elsewhere/cifar10.npz", "elsewhere/cifar10.json")
    assert list(missing(["cifar10"])) == []


@pytest.mark.parametrize("name", [name for name in prepared_names() if data_set(name).download])
def test_a_declared_download_is_one_command_into_the_folder_that_is_looked_at(name: str, root: Path):
    command = data_set(name).download
    assert command is not None
    assert shlex.split(command)[0] == "curl"
    parts = data_set(name).text or data_set(name).characters
    assert parts is not None
    assert f"$RESYNC_DATA/{parts.folder}" in command


def test_without_a_folder_of_data_the_way_begins_there(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RESYNC_DATA", str(root / "none"))
    [line] = missing(["cifar10"])
    assert line.startswith(f"data cifar10 missing: RESYNC_DATA={root}/none: no such folder -> mkdir -p $RESYNC_DATA; ")
    monkeypatch.delenv("RESYNC_DATA")
    [line] = missing(["imagenet1k"])
    assert line == "data imagenet1k missing: RESYNC_DATA is not set -> export RESYNC_DATA=FOLDER; see docs/data.md"

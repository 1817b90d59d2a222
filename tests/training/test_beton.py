"""Images packed by FFCV: the same batches as from the files, and what is wrong with a file is one line."""

import json
import os
import re
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machine import until
from photos import batches, declared, equal, linked, write_photos
from PIL import Image

from resync.tasks import prepare
from resync.tasks.data import streamed
from resync.tasks.data.streamed import Streamed
from resync.tasks.data_sets.declaration import DataSet
from resync.tasks.prepare import beton
from resync.tasks.prepare.listing import ImageFiles

# Not imported before a test needs it: this compiles for seconds, in every process that only looks for tests.
pytestmark = pytest.mark.skipif(find_spec("ffcv") is None, reason="FFCV is not installed (docs/data.md)")
RAW = {"jpeg_share": 0.0}
FILES = ["train-000.beton", "train-001.beton", "train-002.beton", "val-000.beton"]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> tuple[DataSet, Path]:
    """The data set and its root, prepared for FFCV without loss, ten images a file; no test changes it."""
    folder = tmp_path_factory.mktemp("beton")
    of, root = declared(folder, streaming=RAW), folder / "root"
    write_photos(root / "photos")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beton, "IMAGES_IN_A_FILE", 10)
        prepare.prepare(of, root, "beton")
    return of, root


@pytest.fixture
def loaded(packed: tuple[DataSet, Path], monkeypatch: pytest.MonkeyPatch) -> dict[str, Streamed]:
    """The data set in each format."""
    of, root = packed
    monkeypatch.setenv("RESYNC_DATA", str(root))
    return {format: streamed.read(of, "strong", format, decoders=0) for format in ("files", "beton")}


def test_the_files_are_complete(packed: tuple[DataSet, Path]):
    of, root = packed
    record = prepare.load_stream(of, root, "beton").record
    assert list(record["files"]) == FILES
    assert record["settings"] == {"max_side": 500, "jpeg_share": 0.0, "jpeg_quality": 90}
    assert all(each.holds for each in prepare.check(of, root, "beton"))
    assert not list((root / "prepared").rglob("*.partial"))


def test_both_formats_give_the_same_batches(loaded: dict[str, Streamed]):
    one, other = loaded.values()
    assert one.sha256 != other.sha256
    assert equal(batches(one), batches(other))
    assert equal(list(one.validation(0, 1)), list(other.validation(0, 1)))


def test_large_images_are_shrunk_and_jpegs_look_alike(packed: tuple[DataSet, Path], tmp_path: Path):
    of, root = linked(tmp_path, packed[1], streaming={"max_side": 24, "jpeg_share": 1.0})
    prepare.prepare(of, root, "beton")
    assert all(each.holds for each in prepare.check(of, root, "beton"))
    images = prepare.load_stream(of, root, "beton").splits["train"]
    originals = prepare.load_stream(of, root, "files").splits["train"]
    assert np.array_equal(images.labels, originals.labels)
    for index in (0, 23):
        pixels, original = images.pixels(index), originals.pixels(index)
        assert max(pixels.shape) - min(24, max(original.shape)) in (-1, 0)  # FFCV rounds down
        size = pixels.shape[1], pixels.shape[0]
        shrunk = np.asarray(Image.fromarray(original).resize(size, Image.Resampling.BILINEAR))
        # Few pixels of strong colours: JPEG keeps one colour for four of them.
        found, swapped = (np.abs(pixels.astype(float) - each).mean() for each in (shrunk, shrunk[..., ::-1]))
        assert found < min(16, 0.5 * swapped)


def test_an_interrupted_conversion_goes_on_where_it_stopped(
    packed: tuple[DataSet, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    of, root = linked(tmp_path, packed[1], streaming=RAW)
    monkeypatch.setattr(beton, "IMAGES_IN_A_FILE", 10)
    written: list[range] = []

    def write(of: DataSet, images: Any, indices: range, file: Path) -> None:
        written.append(indices)
        file.write_bytes(b"a file")
        if len(written) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(beton, "_write", write)
    with pytest.raises(KeyboardInterrupt):
        prepare.prepare(of, root, "beton")
    folder = root / "prepared/tiny.beton"
    complete = ["train-000.beton", "train-000.json", "train-001.beton", "train-001.json"]
    assert sorted(os.listdir(folder)) == complete
    (folder / "train-001.json").unlink()  # as of a conversion that ended before it was written
    with pytest.raises(ValueError, match=r"tiny\.beton\.json is missing; make it with: resync data prepare"):
        prepare.load_stream(of, root, "beton")
    prepare.prepare(of, root, "beton")
    assert written == [range(10), range(10, 20), range(20, 24), range(10, 20), range(20, 24), range(6)]


def test_a_damaged_image_is_one_line_and_no_file_is_left(packed: tuple[DataSet, Path], tmp_path: Path):
    of, root = declared(tmp_path, streaming=RAW), tmp_path / "root"
    write_photos(root / "photos")
    file = root / "photos/train/n0/0.JPEG"
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"^data tiny: \S+n0/0.JPEG: not an image, or a damaged one"):
        prepare.prepare(of, root, "beton")
    assert os.listdir(root / "prepared/tiny.beton") == []
    assert not beton.record_file(of, root).exists()


def test_a_killed_writing_process_is_one_line_after_a_time_out_and_leaves_nothing(
    packed: tuple[DataSet, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    of, root = linked(tmp_path, packed[1], streaming=RAW)
    shared_memory = set(Path("/dev/shm").iterdir())
    monkeypatch.setattr(beton, "SILENT_SECONDS", 2)
    monkeypatch.setattr(ImageFiles, "pixels", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(ValueError, match=r"^data tiny: FFCV's writer has taken no image for 2 seconds: "):
        prepare.prepare(of, root, "beton")
    assert os.listdir(root / "prepared/tiny.beton") == []
    # Python frees it when the last process has ended that could use it.
    until(lambda: set(Path("/dev/shm").glob("psm_*")) <= shared_memory)


@pytest.fixture
def changing(packed: tuple[DataSet, Path], tmp_path: Path) -> tuple[DataSet, Path]:
    """A copy of the prepared files, for tests that change them."""
    of, root = declared(tmp_path, streaming=RAW), tmp_path / "root"
    (root / "prepared/tiny.beton").mkdir(parents=True)
    for path in (packed[1] / "prepared").rglob("*.*"):
        if path.is_file():
            (root / path.relative_to(packed[1])).write_bytes(path.read_bytes())
    return of, root


def flip(file: Path, place: int) -> None:
    """Change one bit of the byte at `place`."""
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


AGAIN = r"delete it and \S+tiny\.beton\.json, then: resync data prepare"


def test_a_truncated_file_is_refused(changing: tuple[DataSet, Path]):
    of, root = changing
    file = root / "prepared/tiny.beton/train-001.beton"
    os.truncate(file, file.stat().st_size - 100)
    with pytest.raises(ValueError, match=rf"train-001.beton: damaged \(found \d+ bytes, allowed: \d+\); {AGAIN}"):
        prepare.load_stream(of, root, "beton")


def test_a_change_is_found_at_the_start_in_parts_and_by_check_everywhere(
    changing: tuple[DataSet, Path], monkeypatch: pytest.MonkeyPatch
):
    for name, value in (("END_BYTES", 1000), ("BLOCKS", 2), ("BLOCK_BYTES", 10)):
        monkeypatch.setattr(beton, name, value)
    of, root = changing
    file = root / "prepared/tiny.beton/train-000.beton"
    record = json.loads(beton.record_file(of, root).read_text())
    for name, known in record["files"].items():
        known["sample_sha256"] = beton._sample(file.with_name(name))
    size = file.stat().st_size
    for place in (400, size - 10, (size - 10) // 2):  # a class, the place of an image, the block in the middle
        flip(file, place)
        with pytest.raises(ValueError, match=rf"train-000.beton: damaged \(SHA-256 of its ends and some .*{AGAIN}"):
            beton.load(of, root, record)
        flip(file, place)
    flip(file, (size - 10) // 2 + 20)
    assert [str(each)[:30] for each in beton.properties(of, root, record) if not each.holds] == [
        "train-000.beton sha256: found "
    ]


RECORDS = {
    "a name of a file": (("files",), {"../x.beton": {}}, "files: found ../x.beton: {}, allowed: train-000.beton, ..."),
    "no length": (
        ("files", "val-000.beton", "bytes"),
        None,
        "files.val-000.beton.bytes: found null, allowed: a whole ",
    ),
    "another sum": (("files", "val-000.beton", "sha256"), "0", "sha256: found "),
}


@pytest.mark.parametrize(("keys", "value", "message"), RECORDS.values(), ids=RECORDS)
def test_a_changed_record_is_refused(keys: tuple[str, ...], value: Any, message: str, changing: tuple[DataSet, Path]):
    of, root = changing
    file = beton.record_file(of, root)
    record = json.loads(file.read_text())
    *outer, last = keys
    within = record
    for key in outer:
        within = within[key]
    within[last] = value
    file.write_text(json.dumps(record))
    with pytest.raises(ValueError, match=re.escape(f"{file}: damaged ({message}")):
        prepare.load_stream(of, root, "beton")

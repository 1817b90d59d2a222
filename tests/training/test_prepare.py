"""From the original images in every layout to the file that training reads, and what is refused on the way."""

import hashlib
import json
import os
import re
import shutil
import struct
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from images import CLASSES, declare, images, write_archive, write_cifar10, write_files, write_mnist
from launched import code_of, forked, in_clone
from machine import until
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from resync.base.errors import UserError
from resync.tasks import data, prepare
from resync.tasks.data import prepared
from resync.tasks.data_sets.declaration import DataSet, data_set, prepared_names
from resync.tasks.data_sets.preparation import ClassCounts
from resync.tasks.prepare import convert
from resync.tasks.prepare.folders import prepared_file
from resync.tasks.prepare.listing import scan
from resync.tasks.prepare.prepared_file import Images, Prepared, counts, write
from resync.tasks.prepare.sources import find
from resync.tools.cli import main

BATCHES = {"folder": "cifar-10-batches-py", "torchvision": "CIFAR10", "variant": "official"}
FILES = {"folder": "copy", "variant": "copy-q75"}
ORIGIN = {"variant": "copy-q75", "source": "copy"}


@pytest.fixture
def tiny(tmp_path: Path) -> tuple[DataSet, Path]:
    """A data set and its root, with its original files."""
    write_files(tmp_path / "root/copy", images())
    return declare(tmp_path, [FILES]), tmp_path / "root"


@pytest.fixture
def made(tiny: tuple[DataSet, Path]) -> tuple[DataSet, Path]:
    """The same, prepared."""
    prepare.prepare(*tiny)
    return tiny


def left_in(root: Path) -> list[str]:
    """What preparing wrote."""
    return sorted(path.name for path in root.glob("prepared/*"))


def equal(one: Images, other: Images) -> bool:
    return all(np.array_equal(array, other[name]) for name, array in one.items())


@pytest.mark.parametrize("layout", ["folder", "archive", "torchvision"])
def test_every_layout_gives_the_same_images(layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    of, root, original = declare(tmp_path, [BATCHES, FILES]), tmp_path / "root", images()
    if layout == "torchvision":
        write_cifar10(root / "cifar-10-batches-py", original, monkeypatch)
    else:
        {"folder": write_files, "archive": write_archive}[layout](root / "copy", original)
    record = prepare.prepare(of, root)
    found = prepare.load(of, root)
    assert equal(found.images, original)
    assert found.record == record
    sources = {"folder": "copy", "archive": "copy/copy.tar.gz", "torchvision": "cifar-10-batches-py"}
    assert record["source"] == sources[layout]
    assert record["variant"] == ("official" if layout == "torchvision" else "copy-q75")
    assert (record["train_samples"], record["val_samples"], record["num_classes"]) == (6, 3, 3)
    assert str(tmp_path) not in json.dumps(record)
    assert all(each.holds for each in prepare.check(of, root))
    assert left_in(root) == ["tiny.json", "tiny.npz"]


def test_the_same_images_give_the_same_file_and_what_is_prepared_is_left_alone(tiny: tuple[DataSet, Path]):
    of, root = tiny
    first = prepare.prepare(of, root)
    shutil.rmtree(root / "prepared")
    assert prepare.prepare(of, root) == first
    shutil.rmtree(root / "copy")
    assert prepare.prepare(of, root) == first


def test_a_record_is_of_its_file_also_after_an_interruption(made: tuple[DataSet, Path]):
    of, root = made
    prepared_file(of, root).unlink()
    with mock.patch.object(np, "savez", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        prepare.prepare(of, root)
    assert left_in(root) == []
    prepare.prepare(of, root)
    assert left_in(root) == ["tiny.json", "tiny.npz"]


def test_pixels_are_averaged_and_halves_rounded_up(tmp_path: Path):
    of, root, original = declare(tmp_path, [FILES], average=2, input_shape=[3, 16, 16]), tmp_path / "root", images()
    original["train_images"][0, 0, :2, :2] = [[0, 0], [1, 1]]
    write_files(root / "copy", original)
    assert prepare.prepare(of, root)["variant"] == "copy-q75@16"
    found = prepare.load(of, root).images["train_images"]
    exact = original["train_images"].reshape(6, 3, 16, 2, 16, 2).mean(axis=(3, 5))
    assert np.array_equal(found, np.floor(exact + 0.5))
    assert found[0, 0, 0, 0] == 1


def test_grey_images_of_the_official_files_of_mnist(tmp_path: Path):
    source = {"folder": "MNIST/raw", "torchvision": "MNIST", "variant": "mnist"}
    of, root, original = declare(tmp_path, [source], input_shape=[1, 6, 4]), tmp_path / "root", images((1, 6, 4))
    write_mnist(root / "MNIST/raw", original)
    prepare.prepare(of, root)
    assert equal(prepare.load(of, root).images, original)


def test_pictures_whose_rows_are_images(tmp_path: Path):
    sheets = {"labels": "classes.tsv", "train": ["part_1.png", "part_2.png"], "val": ["part_0.png"]}
    of, root, original = declare(tmp_path, [FILES | {"sheets": sheets}]), tmp_path / "root", images()
    (root / "copy").mkdir(parents=True)
    table, parts = ["batch\trow\tlabel"], {0: (original["val_images"], original["val_labels"])}
    parts |= {
        n: (original["train_images"][at], original["train_labels"][at]) for n, at in ((1, slice(4)), (2, slice(4, 6)))
    }
    for number, (pixels, labels) in parts.items():
        Image.fromarray(pixels.transpose(0, 2, 3, 1).reshape(len(pixels), -1, 3)).save(root / f"copy/part_{number}.png")
        table += [f"{number}\t{row}\t{label}" for row, label in enumerate(labels)]
    (root / "copy/classes.tsv").write_text("\n".join(table[:-1]))
    with pytest.raises(ValueError, match=r"part_2.png: has a row that classes.tsv does not list"):
        prepare.prepare(of, root)
    (root / "copy/classes.tsv").write_text("\n".join(table))
    prepare.prepare(of, root)
    assert equal(prepare.load(of, root).images, original)
    (root / "copy/part_1.png").unlink()
    shutil.rmtree(root / "prepared")
    with pytest.raises(ValueError, match=r"part_1.png: cannot be read"):
        prepare.prepare(of, root)


def test_validation_images_whose_classes_are_in_a_table(tmp_path: Path):
    of, root, original = declare(tmp_path, [FILES | {"val_labels": "val.tsv"}]), tmp_path / "root", images()
    write_archive(root / "copy", original)
    (root / "copy/copy.tar.gz").unlink()
    for split in ("train", "test"):
        for label in CLASSES:
            target = root / "copy" / ("val/images" if split == "test" else f"train/{label}/images")
            target.mkdir(parents=True, exist_ok=True)
            for file in (root / "moved" / split / label).iterdir():
                file.rename(target / file.name)
    table = root / "copy/val.tsv"
    table.write_text("0000.png\tant\t0\n0001.png\tbee\t1\n")
    with pytest.raises(ValueError, match=r"val/images/0002.png: has no class in val.tsv"):
        prepare.prepare(of, root)
    table.write_text("0000.png\tant\t0\n0001.png\tbee\t1\n0002.png\tcat\t2\n")
    prepare.prepare(of, root)
    assert equal(prepare.load(of, root).images, original)


ONE = "train/ant/0000.png"


def long_text() -> PngInfo:
    """A text of a PNG that unpacks to more than Pillow takes."""
    text = PngInfo()
    text.add_text("note", "x" * (2 << 20), zip=True)
    return text


@pytest.mark.parametrize("raised", [ValueError("a"), struct.error("b"), IndexError("c"), RuntimeError("")])
def test_whatever_pillow_raises_names_the_file(
    raised: Exception, tiny: tuple[DataSet, Path], monkeypatch: pytest.MonkeyPatch
):
    """In memory, in the list of files, and when a listed file is read."""
    of, root = tiny
    original, [listed, _] = find(of, root), scan(find(of, root)).values()
    monkeypatch.setattr(Image, "open", mock.Mock(side_effect=raised))
    reason = str(raised) or type(raised).__name__
    for read in (original.read, lambda: scan(original), lambda: listed.pixels(0)):
        with pytest.raises(UserError, match=rf"{ONE}: not an image, or a damaged one \({reason}\)$"):
            read()
    monkeypatch.setattr(Image, "open", mock.Mock(side_effect=MemoryError))
    with pytest.raises(MemoryError):  # of the machine, not of the file
        original.read()


def test_links_to_folders_are_followed_alike(tiny: tuple[DataSet, Path]):
    """For sets in memory and on disk, and in the digest of the originals; a link to a parent ends."""
    of, root = tiny
    plain = find(of, root).sha256()
    (root / "copy/train").rename(root / "elsewhere")
    (root / "copy/train").symlink_to(root / "elsewhere")
    (root / "elsewhere/ant").rename(root / "ants")
    (root / "elsewhere/ant").symlink_to("../ants")
    (root / "copy/parent").symlink_to(root / "copy")
    os.mkfifo(root / "copy/pipe")
    original = find(of, root)
    assert equal(original.read(), images())
    assert original.sha256() == plain
    assert [len(files.paths) for files in scan(original).values()] == [6, 3]


@pytest.mark.parametrize("layout", ["folder", "archive", "torchvision"])
def test_originals_are_compared_with_the_declared_digest(layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """That of the pixels is the same for all layouts, whatever the order of the images."""
    root, original = tmp_path / "root", images()
    digests = sorted(
        hashlib.sha256(f"{split} {label} ".encode() + image.tobytes()).digest()
        for split in ("train", "val")
        for label, image in zip(original[f"{split}_labels"], original[f"{split}_images"], strict=True)
    )
    right = hashlib.sha256(b"".join(digests)).hexdigest()
    for declared in ("0" * 64, right):
        of = declare(tmp_path / declared[:8], [source | {"pixels_sha256": declared} for source in (BATCHES, FILES)])
        if layout == "torchvision":
            write_cifar10(root / "cifar-10-batches-py", original, monkeypatch)
        else:
            {"folder": write_files, "archive": write_archive}[layout](root / "copy", original)
        if declared == right:
            prepare.prepare(of, root)
        else:
            with pytest.raises(UserError, match=f"SHA-256 of the pixels: found {right}, allowed: 0000"):
                prepare.prepare(of, root)
            shutil.rmtree(root)


def test_files_are_compared_with_the_declared_digest(tmp_path: Path):
    of, root = declare(tmp_path, [FILES | {"files_sha256": "0" * 64}]), tmp_path / "root"
    write_files(root / "copy", images())
    for read in (find(of, root).read, lambda: scan(find(of, root))):
        with pytest.raises(UserError, match=r"SHA-256 of the files: found \w{64}, allowed: 0{64}, that of copy-q75$"):
            read()


@pytest.mark.parametrize("name", ["mnist", "mnist_14"])
def test_black_images_are_not_mnist(name: str, tmp_path: Path):
    """With the right labels they have the right numbers of images and classes."""
    of, raw = data_set(name), tmp_path / "MNIST/raw"
    black = {}
    for split in ("train", "val"):
        black[f"{split}_labels"] = np.repeat(
            np.arange(10, dtype=np.uint8), getattr(of.preparation, f"{split}_per_class")
        )
        black[f"{split}_images"] = np.zeros((len(black[f"{split}_labels"]), 1, 28, 28), dtype=np.uint8)
    write_mnist(raw, black)
    with pytest.raises(UserError, match=rf"^data {name}: \S+/raw: SHA-256 of the pixels: found .*, that of mnist$"):
        prepare.prepare(of, tmp_path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (shutil.rmtree, r"found none of \S+/copy/train, \S+/copy/copy.tar.gz \(docs/data.md\)"),
        (
            lambda copy: [shutil.rmtree(copy / split / "bee") for split in ("train", "test")],
            "copy: found training images of 2 classes, allowed: 3",
        ),
        (lambda copy: shutil.rmtree(copy / "train/bee"), "copy: found validation images of bee, which has no .*"),
        (lambda copy: (copy / "train/cat/0005.png").unlink(), "copy: train images: found 5, allowed: 6"),
        (lambda copy: (copy / ONE).write_text("not one"), f"copy: {ONE}: not an image, or a damaged one .*"),
        (lambda copy: os.truncate(copy / ONE, 2000), f"copy: {ONE}: not an image, or a damaged one .*"),
        (
            lambda copy: Image.open(copy / ONE).save(copy / ONE, pnginfo=long_text()),
            rf"copy: {ONE}: not an image, or a damaged one \(Decompressed [Dd]ata [Tt]oo [Ll]arge.*\)",
        ),
        (
            lambda copy: (copy / "train/ant/a.png").symlink_to("no"),
            r"copy: train/ant/a.png: cannot be read \(No such .*",
        ),
        (lambda copy: Image.new("RGBA", (8, 9)).save(copy / ONE), f"copy: {ONE}: found 8x9 RGBA, allowed: 32x32 .*"),
    ],
)
def test_wrong_files_are_one_line_and_nothing_is_written(
    damage: Callable[[Path], Any], message: str, tiny: tuple[DataSet, Path]
):
    of, root = tiny
    damage(root / "copy")
    with pytest.raises(ValueError, match=rf"^data tiny: (\S+/)?{message}$"):
        prepare.prepare(of, root)
    assert left_in(root) == []


def test_a_truncated_archive_is_one_line_and_nothing_is_written(tmp_path: Path):
    of, root = declare(tmp_path, [FILES]), tmp_path / "root"
    archive = write_archive(root / "copy", images())
    archive.write_bytes(archive.read_bytes()[:-5000])
    with pytest.raises(ValueError, match=r"copy\.tar\.gz: the archive is damaged or incomplete"):
        prepare.prepare(of, root)
    assert left_in(root) == []


def test_damaged_official_files_are_refused_although_another_source_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    of, root = declare(tmp_path, [BATCHES, FILES]), tmp_path / "root"
    write_files(root / "copy", images())
    write_cifar10(root / "cifar-10-batches-py", images(), monkeypatch)
    (root / "cifar-10-batches-py/test_batch").write_bytes(b"half a file")
    with pytest.raises(ValueError, match=r"CIFAR10 cannot read it: Dataset not found or corrupted$"):
        prepare.prepare(of, root)
    assert left_in(root) == []


def test_what_cannot_be_trained_on_says_what_to_do(tiny: tuple[DataSet, Path]):
    of, root = tiny
    with pytest.raises(ValueError, match=r"tiny\.npz is missing; make it with: resync data prepare tiny$"):
        prepare.load(of, root)
    prepare.prepare(of, root)
    file = prepared_file(of, root)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"tiny\.npz: damaged \(.*\); delete it, then: resync data prepare tiny$"):
        prepare.load(of, root)
    write(of, root, images((3, 8, 8)), ORIGIN, counts(of))
    with pytest.raises(ValueError, match=r"found train images \[6, 3, 8, 8\], allowed: \[6, 3, 32, 32\]\); delete it"):
        prepare.load(of, root)


def test_labels_that_were_changed_are_not_trained_on(tiny: tuple[DataSet, Path], monkeypatch: pytest.MonkeyPatch):
    """Also where the file is a sound one: its record names the images that were prepared."""
    of, root = tiny
    monkeypatch.setenv("RESYNC_DATA", str(root))
    record = prepare.prepare(of, root)
    found = prepared.read(of)
    assert (found.sha256, found.verified) == (record["sha256"], "all")
    other = images()
    other["train_labels"][:] = 2
    np.savez(prepared_file(of, root), **other)
    with pytest.raises(ValueError, match=rf"tiny\.npz: damaged \(SHA-256: .* allowed: {record['sha256']}, that of"):
        prepared.read(of)


RECORDS = {
    b"": "not JSON: Expecting value: line 1 column 1 (char 0)",
    b"{}": "variant: found null, allowed: text",
    b"[" * 100_000: "not JSON: maximum recursion depth exceeded",
}


@pytest.mark.parametrize(("content", "message"), RECORDS.items(), ids=range(len(RECORDS)))
def test_a_damaged_record_is_one_line_with_its_name(content: bytes, message: str, made: tuple[DataSet, Path]):
    of, root = made
    record = prepared_file(of, root).with_suffix(".json")
    record.write_bytes(content)
    for act in (prepare.load, prepare.check, prepare.prepare):
        with pytest.raises(ValueError, match=re.escape(f"data tiny: {record}: damaged ({message}")) as error:
            act(of, root)
        assert str(error.value).endswith("; delete it, then: resync data prepare tiny")


def test_prepared_data_may_lie_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """In folders of any name, while that of the original images stays as it is."""
    of, root, elsewhere = declare(tmp_path, [FILES]), tmp_path / 'it\'s "da\tta"', tmp_path / "подготовлено $HOME"
    write_files(root / "copy", images())
    monkeypatch.setenv("RESYNC_DATA", str(root))
    monkeypatch.setenv("RESYNC_PREPARED", str(elsewhere))
    record = prepare.prepare(of, root)
    assert sorted(path.name for path in elsewhere.iterdir()) == ["tiny.json", "tiny.npz"]
    assert sorted(path.name for path in root.iterdir()) == ["copy"]
    assert prepared.read(of).sha256 == record["sha256"]
    assert all(each.holds for each in prepare.check(of, root))


@pytest.mark.parametrize("image", ["copy", "nothing"], ids=["complete", "failed"])
def test_of_two_conversions_at_once_one_waits_for_the_other(
    image: str, tiny: tuple[DataSet, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It finds what the first one has made, or makes it where that has failed."""
    (of, root), log, find = tiny, tmp_path / "log", convert.find

    def find_late(*given: Any) -> Any:
        with (tmp_path / "finds").open("a") as finds:
            finds.write("once\n")
        until(lambda: "waiting for the process that converts tiny" in log.read_text())
        if image == "nothing" and (tmp_path / "finds").read_text().count("once") == 1:
            raise ValueError("it cannot be read")
        return find(*given)

    def second() -> int:
        until((tmp_path / "finds").exists)
        return 0 if prepare.prepare(of, root) else 1

    monkeypatch.setattr(convert, "find", find_late)
    with forked(second, log=log) as process:
        until(log.exists)
        with nullcontext() if image == "copy" else pytest.raises(ValueError, match="it cannot be read"):
            prepare.prepare(of, root)
        assert code_of(process) == 0, log.read_text()
    assert (tmp_path / "finds").read_text().count("once") == (1 if image == "copy" else 2)
    assert all(each.holds for each in prepare.check(of, root))
    assert left_in(root) == ["tiny.json", "tiny.npz"]


def test_a_folder_that_cannot_be_written_is_named_before_anything_is_read(tmp_path: Path):
    of, root = declare(tmp_path, [FILES]), tmp_path / "root"
    root.mkdir()
    (root / "prepared").touch()
    message = r"prepared data cannot be written here \(Not a directory\), allowed: another folder, named by RESYNC"
    with pytest.raises(ValueError, match=rf"^data tiny: {root}/prepared: {message}"):
        prepare.prepare(of, root)


def test_check_names_every_property_that_does_not_hold(tmp_path: Path):
    of, root, wrong = declare(tmp_path, [FILES]), tmp_path / "root", images()
    wrong["train_labels"][:] = [0, 1, 1, 2, 2, 1]
    wrong["val_labels"][:] = [0, 0, 2]
    write(of, root, wrong, ORIGIN | {"variant": "another"}, counts(of))
    file = prepared_file(of, root).with_suffix(".json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"sha256": "0"}))
    *lines, sha256 = [str(each) for each in prepare.check(of, root) if not each.holds]
    assert lines == [
        "variant: found another, allowed: copy-q75",
        "train images per class: found 1 3 2, allowed: 1 2 3",
        "val classes: found 2, allowed: 3",
        "val images per class: found 2 0 1, allowed: 1 1 1",
    ]
    assert sha256.startswith("sha256: found ")


def test_the_command_line(
    tiny: tuple[DataSet, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    of, root = tiny
    for folder, arguments, message in (
        ("", ["prepare", "digits"], "data sets that are prepared: found 'digits', allowed: cifar10, cifar10_16,"),
        ("", ["check", "mnist"], "data mnist: RESYNC_DATA is not set, allowed: "),
        (root / "none", ["check", "mnist"], f"data mnist: RESYNC_DATA={root / 'none'}: no such folder"),
    ):
        monkeypatch.setenv("RESYNC_DATA", str(folder))
        assert main(["data", *arguments]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith(f"resync: error: {message}")
    monkeypatch.setenv("RESYNC_DATA", str(root))
    monkeypatch.setattr(prepare, "declared", lambda _: of)
    assert main(["data", "prepare", "tiny"]) == 0
    assert json.loads(capsys.readouterr().out) == prepare.load(of, root).record
    assert main(["data", "check", "tiny"]) == 0
    assert "tiny: train images per class: 1 2 3\n" in capsys.readouterr().out
    write(of, root, images(), ORIGIN | {"variant": "another"}, counts(of))
    assert main(["data", "check", "tiny"]) == 1


@pytest.mark.parametrize("name", [name for name in prepared_names() if data_set(name).preparation])
def test_declared_data_sets_agree_with_themselves_and_become_tensors(name: str, monkeypatch: pytest.MonkeyPatch):
    of = data_set(name)
    assert of.preparation
    shape, classes = tuple(of.facts["input_shape"]), of.facts["num_classes"]
    per_class = {"train": of.preparation.train_per_class, "val": of.preparation.val_per_class}
    for split, number in per_class.items():
        samples = of.facts[f"{split}_samples"]
        if isinstance(number, ClassCounts):
            assert number.fewest * classes < samples < number.most * classes
        else:
            wanted = [number] * classes if isinstance(number, int) else number
            assert (len(wanted), sum(wanted)) == (classes, samples)
    small, record = images(shape), {"variant": "small", "sha256": "0"}
    monkeypatch.setattr("resync.tasks.data.prepared.data_root", lambda _: Path())
    monkeypatch.setattr("resync.tasks.data.prepared.load", lambda *_: Prepared(small, record))
    monkeypatch.setattr("resync.tasks.data.streamed.data_root", lambda _: Path())
    split = SimpleNamespace(
        labels=small["val_labels"], pixels=lambda number: small["val_images"][number].transpose(1, 2, 0)
    )
    stream = prepare.Stream({"train": split, "val": split}, record, "list")
    monkeypatch.setattr("resync.tasks.data.streamed.load_stream", lambda *_: stream)
    monkeypatch.setattr("resync.tasks.data.streamed.own_cores", lambda: 0)
    built = data.build(name, of.config().options)
    [(inputs, targets)] = built.validation(0, 1)
    assert (inputs.shape, inputs.dtype) == ((3, *shape), torch.float32)
    assert targets.tolist() == [0, 1, 2]
    assert (built.variant, built.sha256) == ("small", "0")


def test_training_on_prepared_data_needs_neither_progress_bars_nor_sentencepiece(tmp_path: Path):
    """They are for those who convert and for text: a run on a GPU machine with torch and little else has neither."""
    shutil.copytree(Path(prepare.__file__).parents[2], tmp_path / "src/resync")
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['sentencepiece', 'tqdm'])); "
        "from resync.tasks.data import prepared, streamed, text; import resync.tasks.models.transformer"
    )
    assert in_clone(tmp_path, code) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist_14", "cifar10_16", "tiny_imagenet_20"])
def test_real_data_are_prepared_and_checked(name: str, real_data: Path, tmp_path: Path):
    of = data_set(name)
    for source in real_data.iterdir():
        if source.name != "prepared":
            (tmp_path / source.name).symlink_to(source)
    prepare.prepare(of, tmp_path)
    assert all(each.holds for each in prepare.check(of, tmp_path))


def test_training_images_can_take_the_place_of_the_validation_images(
    made: tuple[DataSet, Path], monkeypatch: pytest.MonkeyPatch
):
    of, root = made
    monkeypatch.setenv("RESYNC_DATA", str(root))
    chosen = of.config(name="tiny", held_out=2)
    assert (chosen.facts["train_samples"], chosen.facts["val_samples"]) == (4, 2)
    whole, found, again = prepared.read(of), *(prepared.read(of, **chosen.options) for _ in range(2))
    assert (found.num_train, len(found.val_targets), found.variant) == (4, 2, "copy-q75, 2 training images held out")
    both = torch.cat([found.train_inputs, found.val_inputs]).flatten(1).tolist()
    assert sorted(both) == sorted(whole.train_inputs.flatten(1).tolist())
    assert torch.equal(found.val_inputs, again.val_inputs)
    for image, label in zip(found.val_inputs, found.val_targets, strict=True):
        [place] = (whole.train_inputs == image).flatten(1).all(1).nonzero().tolist()
        assert whole.train_targets[place] == label
    with pytest.raises(ValueError, match="held_out: found 6, allowed: null or less than the 6 training samples"):
        of.config(name="tiny", held_out=6)

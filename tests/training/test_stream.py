"""Images that are read from disk during training: every batch the same, however it is loaded."""

import errno
import multiprocessing
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from images import declare
from photos import COUNTS, FOLDER, PER_CLASS, SMALL_RUN, batches, declared, equal, sampler, write_photos
from PIL import Image
from runs import assert_runs_agree, make_run
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

from resync.runs.train.mixup import Mixup
from resync.tasks import data, prepare
from resync.tasks.data import streamed
from resync.tasks.data.rand_augment import RandAugment
from resync.tasks.data.sampling import Share
from resync.tasks.data.streamed import Streamed
from resync.tasks.data.transforms import TrainingTransform, validation_transform
from resync.tasks.data_sets.declaration import DataSet
from resync.tasks.prepare import listing
from resync.tasks.prepare.folders import prepared_file


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> tuple[DataSet, Path]:
    """The data set and its prepared root; no test changes it."""
    folder = tmp_path_factory.mktemp("stream")
    of, root = declared(folder), folder / "root"
    write_photos(root / "photos")
    prepare.prepare(of, root, "files")
    return of, root


@pytest.fixture
def small(photos: tuple[DataSet, Path], monkeypatch: pytest.MonkeyPatch) -> Streamed:
    """The data set as runs read it."""
    of, root = photos
    monkeypatch.setenv("RESYNC_DATA", str(root))
    return streamed.read(of, "strong", "files", decoders=0)


def test_a_list_of_files_is_prepared_checked_and_read(photos: tuple[DataSet, Path]):
    of, root = photos
    stream = prepare.load_stream(of, root, "files")
    assert all(each.holds for each in prepare.check(of, root, "files"))
    assert stream.record["source"] == "photos"
    for split, number in PER_CLASS.items():
        images = stream.splits[split]
        assert images.labels.tolist() == np.repeat(np.arange(3), number).tolist()
        for index in (0, 3 * number - 1):
            label, name = divmod(index, number)
            with Image.open(root / f"photos/{split}/n{label}/{name}.JPEG") as image:
                assert np.array_equal(images.pixels(index), np.asarray(image))
    assert sorted(path.name for path in (root / "prepared").iterdir() if path.is_file()) == ["tiny.json", "tiny.npz"]


def test_validation_images_may_lie_flat_beside_a_table(photos: tuple[DataSet, Path], tmp_path: Path):
    source, root = FOLDER | {"val_labels": "val.tsv"}, tmp_path / "root"
    of = declare(tmp_path, [source], streaming={}, input_shape=[3, 16, 16], **COUNTS)
    shutil.copytree(photos[1] / "photos", root / "photos")
    lines = []
    for file in sorted((root / "photos/val").glob("*/*")):
        name = f"ILSVRC_{len(lines)}.JPEG"
        lines.append(f"{name}\t{file.parent.name}")
        file.rename(root / "photos/val" / name)
    with pytest.raises(ValueError, match="photos: val images: found 0, allowed: 6"):
        prepare.prepare(of, root, "files")
    (root / "photos/val.tsv").write_text("\n".join(lines))
    prepare.prepare(of, root, "files")
    assert prepare.load_stream(of, root, "files").splits["val"].labels.tolist() == [0, 0, 1, 1, 2, 2]


def test_wrong_folders_are_one_line_and_nothing_is_written(photos: tuple[DataSet, Path], tmp_path: Path):
    of, root = declared(tmp_path, train_per_class={"fewest": 7, "most": 9}), tmp_path / "root"
    root.mkdir()
    with pytest.raises(ValueError, match=r"^data tiny: found none of \S+photos/train, \S+photos.tar.gz"):
        prepare.prepare(of, root, "files")
    (root / "photos").symlink_to(photos[1] / "photos")
    with pytest.raises(
        ValueError, match=r"^data tiny: \S+photos: train images per class: found 8 to 8, allowed: 7 to 9"
    ):
        prepare.prepare(of, root, "files")
    assert not (root / "prepared").exists()


def test_what_is_missing_is_one_line(photos: tuple[DataSet, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    of, root = declared(tmp_path), tmp_path / "root"
    command = "make it with: resync data prepare tiny --format files$"
    with pytest.raises(ValueError, match=rf"^data tiny: \S+prepared/tiny.npz is missing; {command}"):
        prepare.load_stream(of, root, "files")
    monkeypatch.setattr("resync.tasks.prepare.beton.installed", lambda: False)
    for act in (prepare.load_stream, prepare.prepare):
        with pytest.raises(ValueError, match=r"^data tiny: format beton needs FFCV: pip install ffcv==1.0.2, .*auto"):
            act(of, root, "beton")
    assert not (root / "prepared").exists()
    assert prepare.load_stream(photos[0], photos[1], "auto").record["source"] == "photos"


def test_a_file_that_changed_is_found_by_check_and_a_damaged_one_when_it_is_read(
    photos: tuple[DataSet, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    of, root = declared(tmp_path), tmp_path / "root"
    shutil.copytree(photos[1] / "photos", root / "photos")
    prepare.prepare(of, root, "files")
    (root / "photos/train/n1/0.JPEG").unlink()
    file = root / "photos/train/n0/0.JPEG"
    length = file.stat().st_size
    file.write_bytes(file.read_bytes()[:100])
    wrong = [str(each) for each in prepare.check(of, root, "files") if not each.holds]
    assert wrong == ["train files missing or changed: found 2, allowed: 0"]
    changed = r"n0/0.JPEG: found 100 bytes, allowed: \d+, its length when the images were listed"
    with pytest.raises(ValueError, match=rf"^data tiny: \S+{changed}"):
        prepare.load_stream(of, root, "files")
    monkeypatch.setattr(listing, "LOOKED_AT", 1)
    file.write_bytes(length * b"-")
    images = prepare.load_stream(of, root, "files").splits["train"]
    with pytest.raises(ValueError, match=r"n0/0.JPEG: not an image, or a damaged one"):
        images.pixels(0)
    monkeypatch.setenv("RESYNC_DATA", str(root))
    for decoders in (0, 1):  # in one line, as it was raised
        with pytest.raises(ValueError, match=r"^\S+/n0/0.JPEG: not an image, or a damaged one \([^\n]+\)$"):
            batches(streamed.read(of, "strong", "files", decoders=decoders))
    file.write_bytes(100 * b"-")
    with pytest.raises(ValueError, match=changed):
        images.pixels(0)


@pytest.mark.parametrize("decoders", [0, 1])
def test_a_file_that_cannot_be_read_now_is_not_called_damaged(decoders: int, small: Streamed, monkeypatch):
    """Another attempt may succeed, as after an error of a network file system."""

    def failing(path: Path) -> bytes:
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(Path, "read_bytes", failing)
    with pytest.raises(OSError, match=r"^\[Errno 5\] Input/output error: '[^\n]+JPEG'$"):
        batches(replace(small, decoders=decoders))


def test_a_list_of_files_that_is_not_that_of_its_record_is_refused(photos: tuple[DataSet, Path], tmp_path: Path):
    of, root = declared(tmp_path), tmp_path / "root"
    shutil.copytree(photos[1], root)
    file = prepared_file(of, root)
    with np.load(file) as arrays:
        changed = dict(arrays)
    changed["train_labels"] = changed["train_labels"][::-1]
    np.savez(file, **changed)
    with pytest.raises(ValueError, match=r"^data tiny: \S+tiny.npz: damaged \(SHA-256: found \w+, allowed: \w+"):
        prepare.load_stream(of, root, "files")
    [wrong] = [str(each) for each in prepare.check(of, root, "files") if not each.holds]
    assert wrong.startswith("sha256: found ")


@pytest.mark.parametrize(("variable", "processes"), [("LOCAL_WORLD_SIZE", 2), ("LOCAL_SIZE", 4), (None, 1)])
def test_images_are_decoded_on_all_cores_of_a_process(
    variable: str | None, processes: int, photos: tuple[DataSet, Path], monkeypatch: pytest.MonkeyPatch
):
    """Shared out among the processes of the run on this machine, whatever the number of threads is."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(9)))
    for name in ("LOCAL_WORLD_SIZE", "LOCAL_SIZE"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, str(processes))
    of, root = photos
    monkeypatch.setenv("RESYNC_DATA", str(root))
    given = of.config(name="tiny", format="files").options
    assert streamed.read(of, **given).decoders == 9 // processes
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert streamed.read(of, **given).decoders == 1
    assert streamed.read(of, **given | {"decoders": 3}).decoders == 3


def test_the_number_of_decoding_processes_decides_no_result_and_is_not_in_the_hash(tmp_path: Path):
    given = {"name": "tiny_imagenet_20_224", "format": "files"}
    one, other, another = (
        make_run(tmp_path / str(number), **SMALL_RUN | {"data": given | changes}).hash
        for number, changes in enumerate([{}, {"decoders": 3}, {"format": "beton"}])
    )
    assert one == other != another


@pytest.mark.parametrize("replacement", [False, True])
def test_batches_depend_on_seed_epoch_and_worker_only(small: Streamed, replacement: bool):
    plan = sampler(replacement=replacement)
    whole = batches(small, plan=plan)
    inputs, targets = whole[0]
    assert (inputs.shape, inputs.dtype) == ((4, 2, 3, 16, 16), torch.float32)
    assert torch.equal(targets, torch.from_numpy(small.splits["train"].labels[plan.epoch(1)[0]]))
    torch.manual_seed(1)
    state = torch.get_rng_state()
    assert equal(batches(small, plan=plan), whole)
    assert torch.equal(torch.get_rng_state(), state)
    assert equal(batches(small, plan=plan, first_step=1), whole[1:])
    assert equal(batches(small, slice(2, 4), plan=plan), [(x[2:], y[2:]) for x, y in whole])
    assert not equal(batches(small, plan=plan, epoch=2), whole)
    batch, labels = small.statistics_batch(7, epoch=3, index=1, batch_size=4)
    again = small.statistics_batch(7, epoch=3, index=1, batch_size=4)
    assert torch.equal(batch, again[0])
    assert torch.equal(labels, again[1])
    assert batch.shape == (4, 3, 16, 16)


def test_validation_images_are_shared_out_and_cropped_in_the_centre(small: Streamed):
    [(whole, targets)] = small.validation(0, 1)
    parts = [next(small.validation(rank, 2)) for rank in (0, 1)]
    assert targets.tolist() == [0, 0, 1, 1, 2, 2]
    assert list(small.validation(6, 7)) == []
    for rank, (inputs, labels) in enumerate(parts):
        assert torch.equal(inputs, whole[rank::2])
        assert torch.equal(labels, targets[rank::2])
    image = torch.from_numpy(small.splits["val"].pixels(0)).permute(2, 0, 1)
    side = round(min(image.shape[1:]) * 224 / 256)
    top, left = ((length - side) / 2 for length in image.shape[1:])
    crop = F.resized_crop(image, round(top), round(left), side, side, [16, 16], antialias=True)
    torch.testing.assert_close(whole[0], (crop / 255 - 0.5) / 0.25)
    assert torch.equal(validation_transform(16)(image), crop)


def test_settings_of_rand_augment_reach_the_images(photos: tuple[DataSet, Path], monkeypatch: pytest.MonkeyPatch):
    of, root = photos
    monkeypatch.setenv("RESYNC_DATA", str(root))

    def last_transform(**options: Any) -> object:
        given = of.config(name="tiny", format="files", decoders=0, **options).options
        return streamed.read(of, **given).transforms["train"].then

    assert last_transform(augmentation="strong") == RandAugment(depth=2, severity=10)
    assert last_transform(augmentation="strong", rand_augment={"depth": 1, "severity": 3.0}) == RandAugment(1, 3)
    assert not isinstance(last_transform(), RandAugment)
    with pytest.raises(ValueError, match="rand_augment: found with augmentation standard"):
        of.config(name="tiny", rand_augment={})


def test_mixup_mixes_pairs_of_a_micro_batch_by_one_share():
    mixup = Mixup(alpha=0.5, num_classes=12, micro_batches=2, seed=3)
    targets = torch.arange(12).expand(2, 12)
    inputs = torch.nn.functional.one_hot(targets, 12).float().unflatten(-1, (3, 4))
    mixed, labels = mixup(inputs, targets, step=5, first_worker=1)
    assert torch.equal(mixed.flatten(2), labels)
    torch.testing.assert_close(labels.sum(-1), torch.ones(2, 12))
    for worker in labels:
        for part in (slice(0, 6), slice(6, 12)):
            assert worker[part].sum(0)[part].isclose(torch.ones(6)).all()
            shares = 1 - worker.diagonal()[part]
            assert shares[shares > 0].isclose(shares.max()).all()
            assert shares.max() <= 0.5
    alone, _ = mixup(inputs[1:], targets[1:], step=5, first_worker=2)
    assert torch.equal(alone, mixed[1:])
    assert not torch.equal(mixup(inputs, targets, step=6, first_worker=1)[0], mixed)
    for index in range(2):
        own = Share(index, 2).of(12)
        part = replace(mixup, share=Share(index, 2))(inputs[:, own], targets[:, own], step=5, first_worker=1)
        assert all(torch.equal(some, of_all[:, own]) for some, of_all in zip(part, (mixed, labels), strict=True))


def test_processes_of_a_worker_read_their_shares_of_its_batches(small: Streamed):
    """And only these, augmented as in the whole batch."""
    whole = batches(small)
    for index in range(2):
        own = batches(small, plan=replace(sampler(), share=Share(index, 2)))
        assert equal(own, [(inputs[:, index : index + 1], targets[:, index : index + 1]) for inputs, targets in whole])


@pytest.fixture
def streamed_runs(small: Streamed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs read the small images instead of the declared ones."""
    monkeypatch.setattr(data, "build", lambda *_: small)


@pytest.mark.usefixtures("streamed_runs")
def test_runs_agree_over_processes_and_after_an_interruption(tmp_path: Path):
    assert_runs_agree(tmp_path, SMALL_RUN, stop=2)


@pytest.mark.parametrize(("height", "width"), [(60, 90), (40, 500), (500, 40)])
def test_training_crops_are_torchvisions_bit_by_bit(height: int, width: int):
    """Also of images so long that ten draws may not fit, and are then cropped in the centre.

    Without AVX2 torchvision resizes in float32 and rounds, so that a value may be another by 1.
    """
    off = 0 if torch.backends.cpu.get_cpu_capability().startswith("AVX") else 1
    image = torch.randint(256, (height, width, 3), dtype=torch.uint8).permute(2, 0, 1)
    theirs = v2.Compose([v2.RandomResizedCrop(32, antialias=True), v2.RandomHorizontalFlip()])
    for seed in range(60):
        torch.manual_seed(seed)
        expected, after = theirs(image), torch.rand(())
        torch.manual_seed(seed)
        assert (TrainingTransform(32)(image).int() - expected.int()).abs().max() <= off
        assert torch.equal(torch.rand(()), after)


def test_processes_that_decode_live_from_pass_to_pass_and_end_when_the_data_set_is_closed(small: Streamed):
    others = set(multiprocessing.active_children())

    def decoders() -> set[Any]:
        return set(multiprocessing.active_children()) - others

    images = replace(small, decoders=2)
    next(images.batches(sampler(), 0, 0, slice(0, 4)))
    started = decoders()
    assert len(started) == 2
    for epoch in (0, 1):
        assert equal(batches(images, epoch=epoch), batches(small, epoch=epoch))
        assert torch.equal(next(images.validation(0, 1))[0], next(small.validation(0, 1))[0])
    assert started < decoders()
    assert len(decoders()) == 4
    images.close()
    assert not decoders()


def test_a_pass_that_another_one_has_ended_does_not_go_on(small: Streamed):
    first = small.batches(sampler(), 0, 0, slice(0, 4))
    next(first)
    next(small.batches(sampler(), 1, 0, slice(0, 4)))
    with pytest.raises(RuntimeError, match="goes on after the next one has begun"):
        next(first)

"""Parallel text from raw files: what is read, cleaned and refused."""

import gzip
import hashlib
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml

from resync.tasks import data, prepare
from resync.tasks.data.sentences import FILE
from resync.tasks.data_sets.declaration import data_set
from resync.tasks.prepare.folders import prepared_file
from resync.tasks.prepare.raw_text import RawText

COUNTS = {"train": 120, "val": 10, "test": 10}
PAIRS = [tuple(line.split("\t")) for line in FILE.read_text(encoding="utf-8").splitlines()]


def declare(folder: Path, **changes):
    """A data set of the first sentences that are shipped, as a package of its own declares it."""
    files = {split: [{"source": f"{split}.en", "target": f"{split}.de"}] for split in COUNTS}
    facts = {"task": "translation", "target_language": "de", "num_classes": 120, "input_shape": [60]}
    declaration = {
        "description": "tiny",
        "reader": {"kind": "text", "max_tokens": 200},
        "facts": facts | {f"{split}_samples": count for split, count in COUNTS.items()} | changes.pop("facts", {}),
        "prepare_text": {"folder": "raw", "variant": "tiny-text", **files} | changes,
    }
    (folder / "package/tasks/data").mkdir(parents=True, exist_ok=True)
    (folder / "package/tasks/data/tiny.yaml").write_text(yaml.safe_dump(declaration))
    data_set.cache_clear()
    return data_set("tiny", folder / "package")


def write_raw(root: Path) -> Path:
    raw = root / "raw"
    raw.mkdir(parents=True)
    rest = PAIRS
    for split, count in COUNTS.items():
        chosen, rest = rest[:count], rest[count:]
        for side, language in enumerate(("en", "de")):
            text = "".join(pair[side] + "\n" for pair in chosen)
            (raw / f"{split}.{language}").write_text(text, encoding="utf-8")
    return raw


def decoded(text: prepare.ParallelCorpus, side: str, split: str) -> list[str]:
    sentences = getattr(text, side)[split]
    parts = np.split(sentences.tokens, np.cumsum(sentences.lengths)[:-1])
    return [text.vocabulary.decode(part.tolist()) for part in parts]


def test_a_text_is_prepared_once_and_read_back(tmp_path: Path):
    of, root = declare(tmp_path), tmp_path / "root"
    write_raw(root)
    record = prepare.prepare(of, root)
    assert (record["variant"], record["train_pairs"], record["num_classes"]) == ("tiny-text", 120, 120)
    assert record == prepare.prepare(of, root) == json.loads(prepared_file(of, root).with_suffix(".json").read_text())
    text, _ = prepare.read(of, root, prepare.ParallelCorpus.from_arrays)
    assert decoded(text, "source", "train") == [english for english, _ in PAIRS[:120]]
    assert decoded(text, "target", "test") == list(text.references) == [german for _, german in PAIRS[130:140]]
    assert all(each.holds for each in prepare.check(of, root))
    prepared_file(of, root).with_suffix(".json").write_text(json.dumps(record | {"train_pairs": 119}))
    assert [str(each) for each in prepare.check(of, root) if not each.holds] == ["train pairs: found 120, allowed: 119"]


def test_compressed_files_archives_and_sgml_give_the_same_text(tmp_path: Path):
    files = {
        "train": [{"source": "train.en.gz", "target": "train.de.gz"}],
        "val": [{"source": "dev.tgz/dev/val.en", "target": "dev.tgz/dev/val.de"}],
        "test": [{"source": "test-src.en.sgm", "target": "test-ref.de.sgm"}],
    }
    plain, packed = declare(tmp_path / "plain"), declare(tmp_path / "packed", **files)
    for folder in ("plain", "packed"):
        write_raw(tmp_path / folder / "root")
    raw = tmp_path / "packed" / "root" / "raw"
    with tarfile.open(raw / "dev.tgz", "w:gz") as archive:
        for language in ("en", "de"):
            archive.add(raw / f"val.{language}", f"dev/val.{language}")
    for language, kind in (("en", "src"), ("de", "ref")):
        (raw / f"train.{language}.gz").write_bytes(gzip.compress((raw / f"train.{language}").read_bytes()))
        lines = (raw / f"test.{language}").read_text(encoding="utf-8").splitlines()
        segments = "".join(f'<seg id="{number}">{line}</seg>\n' for number, line in enumerate(lines))
        (raw / f"test-{kind}.{language}.sgm").write_text(f"<doc>\n{segments}</doc>\n", encoding="utf-8")
    for folder, of in (("plain", plain), ("packed", packed)):
        prepare.prepare(of, tmp_path / folder / "root")
    texts = [prepare.read(of, tmp_path / folder / "root", prepare.ParallelCorpus.from_arrays)[0]
             for folder, of in (("plain", plain), ("packed", packed))]  # fmt: skip
    for ours, theirs in zip(*(text.arrays().values() for text in texts), strict=True):
        assert np.array_equal(ours, theirs)


def test_cleaning_leaves_out_empty_long_and_uneven_pairs(tmp_path: Path):
    of, root = declare(tmp_path, max_ratio=3.0, facts={"train_samples": 123}), tmp_path / "root"
    raw = write_raw(root)
    odd = [("", "Leer."), ("We see.", "Wir sehen das Buch " * 5), ("the book " * 50, "das Buch " * 50)]
    for side, language in enumerate(("en", "de")):
        with (raw / f"train.{language}").open("a", encoding="utf-8") as file:
            file.writelines(pair[side] + "\n" for pair in odd)
    assert prepare.prepare(of, root)["train_pairs"] == 120


def edit(raw: Path, name: str, change: Callable[[list[str]], list[str]], encoding: str = "utf-8") -> None:
    """Change the lines of a file."""
    lines = (raw / name).read_text(encoding="utf-8").splitlines(keepends=True)
    (raw / name).write_text("".join(change(lines)), encoding=encoding)


def for_both(raw: Path, split: str, change: Callable[[list[str]], list[str]]) -> None:
    for language in ("en", "de"):
        edit(raw, f"{split}.{language}", change)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda raw: raw.rename(raw.with_name("elsewhere")), r"\S+/raw: no such folder \(docs/data.md\)"),
        (lambda raw: (raw / "val.de").unlink(), r"\S+/raw/val.de: no such file \(docs/data.md\)"),
        (lambda raw: edit(raw, "train.de", lambda lines: lines[:-1]), r"\S+/raw: found 120 in train.en and 119 .*"),
        (lambda raw: edit(raw, "train.de", lambda lines: [*lines[:6], " \n", *lines[7:]]), r"\S+: sentence 7 is empty"),
        (
            lambda raw: edit(raw, "test.de", lambda lines: [*lines[:3], "Schlüssel\n", *lines[4:]], "latin-1"),
            r"\S+/raw/test.de: line [1-4] is not UTF-8",
        ),
        (
            lambda raw: edit(raw, "val.en", lambda lines: [*lines[:2], "the book " * 50 + "\n", *lines[3:]]),
            r"source sentence 3 of val has \d+ tokens, allowed: at most 60",
        ),
        (lambda raw: for_both(raw, "val", lambda lines: lines[:-1]), r"\S+/raw: val pairs: found 9, allowed: 10"),
        (lambda raw: for_both(raw, "train", lambda lines: ["a b\n"] * 120), "no vocabulary of 120 pieces can be .*"),
    ],
)
def test_wrong_text_is_one_line_and_nothing_is_written(damage: Callable[[Path], object], message: str, tmp_path: Path):
    of, root = declare(tmp_path), tmp_path / "root"
    damage(write_raw(root))
    with pytest.raises(ValueError, match=rf"^data tiny: {message}$"):
        prepare.prepare(of, root)
    assert not (root / "prepared").exists()


def test_a_byte_order_mark_belongs_to_no_sentence(tmp_path: Path):
    """And the declared digest is that of the sentences, whatever the form of the files."""
    root = tmp_path / "root"
    raw = write_raw(root)
    plain = RawText(declare(tmp_path), root).lines()
    digest = hashlib.sha256()
    for side in (side for split in ("train", "val", "test") for side in plain[split]):
        digest.update("".join(f"{line}\n" for line in side).encode())
    for file in raw.iterdir():
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    assert RawText(declare(tmp_path, sha256=digest.hexdigest()), root).lines() == plain
    with pytest.raises(
        ValueError, match=r"raw: SHA-256 of the sentences: found \w{64}, allowed: 0{64}, that declared$"
    ):
        RawText(declare(tmp_path, sha256="0" * 64), root).lines()


def test_a_damaged_archive_is_one_line(tmp_path: Path):
    files = [{"source": "train.tgz/train.en", "target": "train.tgz/train.de"}]
    of, root = declare(tmp_path, train=files), tmp_path / "root"
    raw = write_raw(root)
    with tarfile.open(raw / "train.tgz", "w:gz") as archive:
        archive.add(raw / "train.en", "train.en")
    with pytest.raises(ValueError, match=r"^data tiny: \S+/train.tgz: has no file train.de$"):
        prepare.prepare(of, root)
    (raw / "train.tgz").write_bytes((raw / "train.tgz").read_bytes()[:300])
    with pytest.raises(ValueError, match=r"^data tiny: \S+/train.tgz: damaged or incomplete \(.*\)$"):
        prepare.prepare(of, root)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["multi30k_en_de", "wmt_en_de_small"])
def test_real_text_is_prepared_and_checked(name: str, real_data: Path, tmp_path: Path, monkeypatch):
    of = data_set(name)
    assert of.text
    (tmp_path / of.text.folder).symlink_to(real_data / of.text.folder)
    prepare.prepare(of, tmp_path)
    assert all(each.holds for each in prepare.check(of, tmp_path))
    monkeypatch.setenv("RESYNC_DATA", str(tmp_path))
    assert data.build(name, of.config().options).num_train > 100

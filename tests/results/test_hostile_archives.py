"""An archive that somebody else has made writes folders of runs and nothing else, or nothing: one line says why."""

import json
import lzma
import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest

from resync.archive import unpack as unpacking
from resync.archive.pack import pack
from resync.archive.unpack import CHECKSUMS, RUNS, unpack
from resync.cli import main
from resync.paper import Suite
from resync.results.errors import ResultsError
from resync.results.summary import DIGESTS, NAME, digest, text_of

RUN = "vit/qsr/seed0"


class Archive:
    """An archive of one run, whose files can be replaced; each time it is sealed as by its author."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "smoke/toy" / RUNS
        with tarfile.open(self.file) as tar:
            self.members = [
                (member, tar.extractfile(member).read())  # type: ignore[union-attr]
                for member in tar
                if member.name.startswith(f"{RUN}/")
            ]
        self.write()

    def add(self, name: str, content: bytes = b"x", **header: object) -> None:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        for key, value in header.items():
            setattr(member, key, value)
        self.members.append((member, content))
        self.write()

    def change_summary(self, change: Callable[[dict], object]) -> None:
        for index, (member, content) in enumerate(self.members):
            if member.name == f"{RUN}/{NAME}":
                summary = json.loads(content)
                change(summary)
                digests = {name: value for name, value in summary.pop(DIGESTS).items() if name != NAME}
                content = text_of(summary, digests).encode()
                member.size = len(content)
                self.members[index] = member, content
        self.write()

    def write(self) -> None:
        buffer = BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for member, content in self.members:
                tar.addfile(member, BytesIO(content))
        self.seal(lzma.compress(buffer.getvalue()))

    def seal(self, packed: bytes) -> None:
        self.file.write_bytes(packed)
        self.file.with_name(CHECKSUMS).write_text(json.dumps({RUNS: digest(packed)}))


@pytest.fixture(scope="module")
def packed(suite: Suite, finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    archive = tmp_path_factory.mktemp("packed")
    pack(suite, "smoke", [finished], archive)
    return archive


@pytest.fixture
def archive(packed: Path, tmp_path: Path) -> Archive:
    folder = tmp_path / "archive/smoke/toy"
    folder.mkdir(parents=True)
    (folder / RUNS).write_bytes((packed / "smoke/toy" / RUNS).read_bytes())
    return Archive(tmp_path / "archive")


def refused(archive: Archive, tmp_path: Path) -> str:
    """Why an archive is not unpacked; nothing is written then."""
    before = {file for file in tmp_path.rglob("*") if file.is_file()}
    with pytest.raises(ResultsError) as caught:
        unpack(archive.folder, "smoke", tmp_path / "deep/er/results")
    assert {file for file in tmp_path.rglob("*") if file.is_file()} == before
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(f"{archive.file}: damaged: ")
    return line.removeprefix(f"{archive.file}: damaged: ")


def test_one_that_nobody_has_changed_is_unpacked(archive: Archive, tmp_path: Path):
    unpack(archive.folder, "smoke", tmp_path / "results")
    found = {file.name for file in (tmp_path / "results/smoke/toy" / RUN).iterdir()}
    assert {"run.yaml", "metrics.csv", "steps.csv", NAME} < found


@pytest.mark.parametrize(
    "name",
    [
        "../../../../outside",
        f"{RUN}/../../../../../outside.csv",
        "/tmp/outside.csv",
        f"/{RUN}/metrics.csv",
        "../evil/seed0/metrics.csv",
        f"{RUN}/.bashrc",
        f"{RUN}/module.py",
        f"{RUN}/sub/metrics.csv",
        "vit/qsr/seed0",
        "vit/qsr/seed0x/metrics.csv",
        f"{RUN}/metrics.csv\n",
    ],
)
def test_names_are_those_of_files_of_runs(name: str, archive: Archive, tmp_path: Path):
    archive.add(name)
    assert refused(archive, tmp_path).startswith(f"{name!r}: allowed: ")


@pytest.mark.parametrize(
    "header",
    [
        {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"},
        {"type": tarfile.LNKTYPE, "linkname": "../../../outside"},
        {"type": tarfile.CHRTYPE},
        {"type": tarfile.FIFOTYPE},
        {"type": tarfile.DIRTYPE},
        {"type": tarfile.GNUTYPE_SPARSE},
    ],
)
def test_only_plain_files_are_unpacked(header: dict, archive: Archive, tmp_path: Path):
    archive.add(f"{RUN}/other.csv", b"", **header)
    assert refused(archive, tmp_path).startswith(f"'{RUN}/other.csv': found no plain file")


def test_files_are_those_of_the_summary(archive: Archive, tmp_path: Path):
    archive.add(f"{RUN}/other.csv")
    assert refused(archive, tmp_path).startswith(f"{RUN}: has metrics.csv, other.csv, ")
    archive.members.pop()
    archive.add(f"{RUN}/metrics.csv")
    assert refused(archive, tmp_path) == f"'{RUN}/metrics.csv': twice"
    archive.members = [each for each in archive.members if not each[0].name.endswith("metrics.csv")]
    archive.write()
    assert refused(archive, tmp_path).startswith(f"{RUN}: has run.yaml, ")
    archive.add(f"{RUN}/metrics.csv")
    assert refused(archive, tmp_path).startswith(f"{RUN}/metrics.csv: changed since it was written")
    archive.members = [each for each in archive.members if not each[0].name.endswith(NAME)]
    archive.write()
    assert refused(archive, tmp_path).startswith(f"{RUN}/{NAME}: missing")


@pytest.mark.parametrize("name", ["../../../../outside", "/dev/zero"])
def test_a_summary_names_no_other_files(name: str, archive: Archive, tmp_path: Path):
    archive.change_summary(lambda summary: summary[DIGESTS].update({name: "0" * 64}))
    assert refused(archive, tmp_path).startswith(f"{RUN}: has ")


def test_the_hash_of_a_summary_names_no_other_file(archive: Archive, tmp_path: Path):
    archive.change_summary(lambda summary: summary.update(config_hash="../../outside", archived=None))
    assert refused(archive, tmp_path).startswith(f"{RUN}/{NAME}: config_hash: found '../../outside'")


def test_sizes_are_limited(archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(unpacking, "LARGEST", 2**20)
    archive.add(f"{RUN}/other.csv", bytes(2**21))
    assert refused(archive, tmp_path) == f"unpacked it has more than {2**20} bytes"
    archive.members.pop()
    archive.write()
    content = bytearray(lzma.decompress(archive.file.read_bytes()))
    last = archive.members[-1][0].name.encode()
    header = tarfile.TarInfo(last.decode())
    header.size = 2**40
    at = content.rindex(last)
    content[at : at + 512] = header.tobuf(tarfile.GNU_FORMAT)
    archive.seal(lzma.compress(bytes(content)))
    assert "ReadError" in refused(archive, tmp_path)


def test_damage_is_one_line(archive: Archive, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    whole = archive.file.read_bytes()
    changed = bytearray(whole)
    changed[len(changed) // 3] ^= 0x40
    archive.file.write_bytes(changed)
    assert refused(archive, tmp_path) == f"it has another SHA-256 than in {CHECKSUMS}"
    for packed in (bytes(changed), whole[: len(whole) // 2], b"", b"no archive", lzma.compress(b"no tar" * 200)):
        archive.seal(packed)
        assert refused(archive, tmp_path)
    for checksums in ("", "[]", "{}", '{"runs.tar.xz": 3}'):
        archive.file.with_name(CHECKSUMS).write_text(checksums)
        assert refused(archive, tmp_path)
    configs = str(Path(__file__).parent / "configs")
    assert main(["redraw", "--configs", configs, "--into", str(tmp_path / "new"), str(archive.folder)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1

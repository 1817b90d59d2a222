"""Files that somebody else has made and sealed: none runs or writes anything, hangs, or hides what others are.

Archives, summaries, logs, column maps, hostfiles and checkpoints: each is taken or refused with one line.
"""

import json
import lzma
import os
import pickle
import shutil
import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from runs import trained
from synthetic import resealed

from resync.base.errors import UserError
from resync.papers.archive import unpack as unpacking
from resync.papers.archive.pack import pack
from resync.papers.archive.unpack import CHECKSUMS, RUNS, unpack
from resync.papers.paper import Suite
from resync.runs.launch import hosts
from resync.runs.results.errors import ResultsError
from resync.runs.results.runs import state_of
from resync.runs.results.summary import DIGESTS, NAME, digest
from resync.runs.run import Run
from resync.tools.cli import main

RUN = "vit/qsr/seed0"
CONFIGS = Path(__file__).parent / "configs"


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
                content = resealed(content, change).encode()
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
    monkeypatch.setattr(unpacking, "_MEMORY", 2**24)
    archive.seal(lzma.compress(b"x", filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 2**25}]))
    assert refused(archive, tmp_path) == "LZMAError: Memory usage limit exceeded"


@pytest.mark.parametrize("name", [RUNS, CHECKSUMS])
def test_a_pipe_in_an_archive_is_not_waited_for(name: str, archive: Archive, tmp_path: Path):
    file = archive.file.with_name(name)
    file.unlink()
    os.mkfifo(file)
    assert refused(archive, tmp_path).endswith(f"{file}: not a regular file")


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
    assert main(["redraw", "--configs", str(CONFIGS), "--into", str(tmp_path / "new"), str(archive.folder)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


WRONG_ENTRIES: dict[str, Any] = {
    "seconds": [], "jobs": 3, "final": {"val_top1": "x"}, "best": None, "steps": -1, "rounds": 10**400, "status": "ok",
    "run": ["x"], "resumed_from": {}, "launch": "H100", "versions": {"torch": []}, "git": {"commit": "$(id)"},
    "diverged": "yes", "imported": {"sources": [{"name": "x"}]}, "archived": [], "data": 1, "ended": 2026,
    "config_hash": 7, "signatures": [], "volume_percent": True,
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_ENTRIES)
def test_entries_of_a_wrong_type_are_damage(name: str, results: Path, runs: list[Run]):
    file = results / runs[1].directory / NAME
    file.write_text(resealed(file.read_text(), lambda summary: summary.update({name: WRONG_ENTRIES[name]})))
    state = state_of(runs[1], results)
    assert state.status == "damaged"
    assert state.reason.startswith(f"{file}: {name}")
    assert state.reason.isprintable()
    assert len(state.reason) < 400


def ended_well(results: Path, *arguments: str) -> None:
    assert main([*arguments, "--configs", str(CONFIGS), "--results", str(results)]) == 0


@pytest.mark.parametrize("name", [NAME, "metrics.csv", "steps.csv", "run.lock", "state.json", "steps.csv.partial"])
def test_verbs_show_the_others_beside_a_pipe(name: str, results: Path, runs: list[Run], capsys):
    folder = results / runs[1].directory
    if name in ("state.json", "steps.csv.partial"):
        (folder / NAME).unlink()
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    ended_well(results, "status")
    ended_well(results, "collect", "toy")
    ended_well(results, "audit")
    said = capsys.readouterr()
    assert "11 finished" in said.out
    if name != "steps.csv.partial":
        assert f"{name}: not a regular file" in said.out
        assert len(said.err.splitlines()) == 1


def test_a_text_that_no_page_could_hold_is_damage(results: Path, runs: list[Run]):
    file = results / runs[1].directory / NAME
    file.write_text(resealed(file.read_text(), lambda summary: summary.update(config_hash="\ud800")))
    assert "surrogates not allowed" in state_of(runs[1], results).reason


def test_a_device_and_a_huge_file_are_no_summaries(results: Path, runs: list[Run], monkeypatch: pytest.MonkeyPatch):
    file = results / runs[1].directory / NAME
    file.unlink()
    file.symlink_to("/dev/zero")
    assert state_of(runs[1], results).reason == f"{file}: not a regular file"
    file.unlink()
    file.write_bytes(b"[" * 2**17)
    monkeypatch.setattr("resync.base.files.LARGEST", 2**16)
    assert state_of(runs[1], results).reason == f"{file}: has more than {2**16} bytes"


@pytest.mark.parametrize("content", [None, "- \n- {", "!!python/object/apply:os.system [touch x]", "{a: &a [*a]}"])
def test_a_comparison_lists_runs_whose_settings_cannot_be_read(
    content: str | None, finished: Path, results: Path, runs: list[Run], capsys: pytest.CaptureFixture[str]
):
    file = results / runs[1].directory / "run.yaml"
    file.unlink()
    if content is not None:
        file.write_text(content)
    assert main(["diff", "--configs", str(CONFIGS), str(finished), str(results)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert f"{len(list(finished.rglob(NAME))) - 1} runs in both" in lines
    [line] = [line for line in lines if line.startswith("unreadable in B: ")]
    assert line.startswith(f"unreadable in B: {runs[1].directory}: {file}")
    assert not Path("x").exists()


@pytest.mark.parametrize("flag", ["--tolerance", "--spreads"])
@pytest.mark.parametrize("value", ["-3", "nan", "inf"])
def test_limits_of_a_comparison_are_numbers(flag: str, value: str, finished: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["diff", "--configs", str(CONFIGS), f"{flag}={value}", str(finished), str(finished)])
    assert f"argument {flag}: found {value}, allowed: a number >= 0" in capsys.readouterr().err


MAP = "epoch: {column: epoch}\nval_top1: {column: top1}\n"
BOMB = "a: &a [x, x]\n" + "".join(f"{new}: &{new} [*{old}, *{old}]\n" for old, new in zip("abcd", "bcde", strict=True))


@pytest.mark.parametrize(
    ("log", "columns", "message"),
    [
        (os.mkfifo, MAP, "log.csv: not a regular file"),
        (lambda file: file.symlink_to("/dev/zero"), MAP, "log.csv: not a regular file"),
        (lambda file: file.write_bytes(b"\xff\xfe"), MAP, "log.csv: not text"),
        (lambda file: file.write_text(f"epoch,top1\n0,{'9' * 200_000}\n"), MAP, "log.csv:2: field larger than"),
        (None, os.mkfifo, "map.yaml: not a regular file"),
        (None, "!!python/object/apply:os.system [touch outside]", "map.yaml:1: found the YAML tag "),
        (None, BOMB, "map.yaml:1: b[0]: YAML alias found"),
        (None, "[" * 5000, "map.yaml:1: found lists or mappings nested more than 100 deep"),
        (None, MAP.replace("top1}", "'=cmd()'}"), "log.csv:1: no column '=cmd()'"),
    ],
)
def test_logs_and_column_maps(log, columns, message: str, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (log or (lambda file: file.write_text("epoch,top1\n1,2\n")))(tmp_path / "log.csv")
    columns(tmp_path / "map.yaml") if callable(columns) else (tmp_path / "map.yaml").write_text(columns)
    given = ["--configs", str(CONFIGS), "--results", "results", "--run", "toy/vit/sgp/seed0"]
    assert main(["import", *given, "--format", "csv", "--columns", "map.yaml", "log.csv"]) == 2
    line = capsys.readouterr().err.splitlines()[0]
    assert line.startswith(f"resync: error: {message}")
    assert len(line) < 300
    assert {file.name for file in tmp_path.iterdir()} == {"log.csv", "map.yaml"}


WRONG_HOSTS = [
    b"-oProxyCommand=x slots=1", b"a\x1b[2J slots=1", b"\xff slots=1", b"a slots=9\0", b"me@a slots=1",
    b"[::1] slots=1", b"a/b slots=1", b"a\xc2\x85b slots=1", None,
]  # fmt: skip


@pytest.mark.parametrize("content", WRONG_HOSTS)
def test_hostfiles(content: bytes | None, tmp_path: Path):
    file = tmp_path / "hosts"
    file.write_bytes(content) if content else os.mkfifo(file)
    with pytest.raises(UserError, match=rf"^{file}:[ -~]+$"):
        hosts.read(file)


class Pickled:
    """What a pickle of it would do."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("outside",)


def shards(folder: Path, content: bytes) -> None:
    """A shard of somebody else, with a digest that fits."""
    (folder / "workers00000.pt").write_bytes(content)
    (folder / "workers00000.sha256").write_text(json.dumps({"sha256": digest(content)}))


OFTEN = {"checkpoint": {"every_rounds": 3}}
CHECKPOINTS: dict[str, Callable[[Path], object]] = {
    "a link": lambda folder: (shutil.rmtree(folder), folder.symlink_to(folder.parents[1] / "precious")),
    "a dangling link": lambda folder: (shutil.rmtree(folder), folder.symlink_to("nowhere")),
    "a file": lambda folder: (shutil.rmtree(folder), folder.write_text("")),
    "a pipe": lambda folder: ((folder / "identity").unlink(), os.mkfifo(folder / "identity")),
    "a pickle": lambda folder: shards(folder, pickle.dumps(Pickled(), 2)),
    "no tensors": lambda folder: shards(folder, b"PK\3\4"),
    "empty": lambda folder: shards(folder, b""),
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_checkpoints(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    """The one before is used, and the next one takes the place of the damaged one, but of nothing that it leads to."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").touch()
    whole = trained(0, 1, tmp_path, OFTEN)
    newest = tmp_path / "checkpoint/step0000000014"
    CHECKPOINTS[name](newest)
    (tmp_path / "checkpoint/x.partial").touch()
    (tmp_path / "checkpoint/y.partial").symlink_to(tmp_path / "precious")
    again = trained(0, 1, tmp_path, OFTEN)
    assert again["resumed_from"] == [12]
    assert (again["rows"] == whole["rows"]).all()
    [line] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert line.startswith(f"{newest}: damaged (")
    assert line.isprintable()
    assert [each.name for each in sorted((tmp_path / "checkpoint").iterdir())] == ["step0000000012", newest.name]
    assert newest.is_dir()
    assert not newest.is_symlink()
    assert (tmp_path / "precious/file").exists()
    assert not (tmp_path / "outside").exists()

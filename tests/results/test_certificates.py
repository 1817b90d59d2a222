"""Certificates: a run trained again with the same bits stands for those of its experiment with uncommitted changes."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import synthetic

from resync.base.errors import UserError
from resync.papers.archive.certificates import certify, read
from resync.papers.archive.pack import pack
from resync.papers.archive.reference import place_of, renew
from resync.papers.paper import Suite
from resync.runs.results.summary import NAME, digest
from resync.runs.run import Run

COMMIT = "f" * 40


def change(directory: Path, **entries: Any) -> None:
    """Other entries of a run's summary, with the digests of its files as they are."""
    file = directory / NAME
    file.write_text(synthetic.resealed(file.read_text(), lambda summary: summary.update(entries)))


def test_one_run_of_an_experiment_is_trained_again(suite: Suite, finished: Path, tmp_path: Path):
    """Only where changes were not committed, only once, and only if it ends with the same bits."""
    results, into = shutil.copytree(finished, tmp_path / "results"), tmp_path / "again"
    place = place_of(tmp_path / "archive", tmp_path / "figures")
    runs = suite.runs("toy", "smoke")
    assert pack(suite, "smoke", [results], place.archive).count == len(runs)
    assert list(certify(suite, "smoke", place.archive, into)) == []

    cheapest = runs[5]
    for run in runs:
        change(results / run.directory, git={"commit": "0" * 40, "dirty": True},
               seconds=json.loads((results / run.directory / NAME).read_text())["seconds"]
               | {"wall": 1.0 if run is cheapest else 2.0})  # fmt: skip
    pack(suite, "smoke", [results], place.archive)
    trained: list[str] = []

    def train(entries: dict[str, Any], rows: int = 0):
        def train(run: Run, into: Path) -> None:
            trained.append(run.id)
            again = shutil.copytree(finished / run.directory, into / run.directory)
            table = (again / "metrics.csv").read_text().splitlines(keepends=True)
            assert "training_seconds" in table[0]
            header = table[0].strip().split(",")
            last = dict(zip(header, table[-1].strip().split(","), strict=True))
            last["training_seconds"] = "9.0"  # another machine, the same values
            last["val_top1"] = "9.0" if rows else last["val_top1"]
            (again / "metrics.csv").write_text("".join(table[:-1]) + ",".join(last.values()) + "\n")
            synthetic.reseal(again)
            change(again, values_sha256="1" * 64, **entries)

        return train

    launch = {"launch": {"processor": "a processor"}}
    clean, dirty = ({"git": {"commit": COMMIT, "dirty": changed}} for changed in (False, True))
    with pytest.raises(UserError, match="trained with uncommitted changes, allowed: in a clean clone"):
        list(certify(suite, "smoke", place.archive, into, train(launch | dirty)))
    for entries, rows, unlike in (
        ({"parameters_sha256": "2" * 64}, 0, f"parameters_sha256: {digest(cheapest.id.encode())}, now {'2' * 64}"),
        ({}, 1, "values of metrics.csv"),
    ):
        shutil.rmtree(into)
        [line] = certify(suite, "smoke", place.archive, into, train(launch | clean | entries, rows))
        assert line == f"{cheapest.id}: differs from the archive in {unlike}"
        assert read(place.archive, "smoke") == {}
    shutil.rmtree(into)
    assert list(certify(suite, "smoke", place.archive, into, train(launch | clean))) == [
        f"{cheapest.id}: the same bits"
    ]
    assert set(trained) == {cheapest.id}
    assert list(certify(suite, "smoke", place.archive, into, train(launch | clean))) == []
    found = read(place.archive, "smoke")["toy/vit"]
    assert (found["commit"], found["processor"], found["values_sha256"]) == (COMMIT, "a processor", "1" * 64)

    for expected in ((0, len(runs)), (len(runs), 0)):
        renew(suite, "smoke", results, place)
        environment = json.loads((place.archive / "smoke/environment.json").read_text())
        assert (environment["with_uncommitted_changes"], environment["certified"]) == expected
        change(results / cheapest.directory, parameters_sha256="3" * 64)  # results of another training

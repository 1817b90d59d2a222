"""A short storm over workers of elastic trainings; `make chaos STORM=1` has a longer one."""

from math import isfinite
from pathlib import Path

import pytest

pytest.importorskip("torchft", reason="torchft is not installed: make trainers")
import storm


@pytest.mark.slow
@pytest.mark.parametrize("method", ["Local SGD", "DiLoCo", "SGP"])
def test_nothing_hangs_or_fails_in_a_storm(method: str, tmp_path: Path):
    storm.prepare()
    found = storm.storm(method, seconds=25, every=3, seed=0, folder=tmp_path / "storm", outage=4)
    assert {fault.kind for fault in found.faults} >= {"kill", "stop"}
    assert [path.read_text() for path in found.folder.glob("*.failed")] == []
    losses = {path.stem: float(path.read_text()) for path in found.folder.glob("*.loss")}
    assert sorted(losses) == [*storm.NAMES]
    assert all(map(isfinite, losses.values()))
    times = found.times()
    assert {name: max(each[2] for each in own) for name, own in times.items()} == dict.fromkeys(storm.NAMES, 8)
    assert all(isfinite(storm.seconds_until_back(fault, times[fault.victim])) for fault in found.faults)

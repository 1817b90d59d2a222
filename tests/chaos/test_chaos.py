"""Random kills, and what a kill costs; `make chaos` does more of them."""

from pathlib import Path

import pytest
from launched import code_of, forked


def _harness(folder: Path, kills: int, seed: int) -> int:
    from harness import Harness

    report = Harness(folder, seed).run(kills)
    (folder / "report.json").write_text(report.as_json())
    print(report.as_text())
    return 1 if report.defects else 0


@pytest.mark.slow
def test_runs_survive_kills_at_any_moment(tmp_path: Path):
    """Twenty of them, over every algorithm; each run ends with the bits of one that was left alone."""
    log = tmp_path / "log"
    with forked(_harness, tmp_path, 20, 1, log=log) as process:
        code = code_of(process)
    print(log.read_text())
    assert code == 0

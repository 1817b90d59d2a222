"""`make chaos` with a few kills: what comes out has the bits of runs to which nothing happened, and nothing is left."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest
from runs import BASE, VARIANTS

from resync.base.processes import warm_client
from resync.base.processes.signals import end_with_parent
from resync.base.settings.base import PACKAGE
from resync.base.settings.options import option_names


@contextmanager
def chaos(*flags: object) -> Iterator[subprocess.Popen[str]]:
    """The harness in a process of its own; nothing of it outlives the block."""
    outside = (warm_client.ADDRESS, "SLURM_JOB_ID")
    environment = {name: value for name, value in os.environ.items() if name not in outside}
    harness = subprocess.Popen(
        [sys.executable, "-u", str(Path(__file__).parent), *map(str, flags)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        preexec_fn=partial(end_with_parent, signal.SIGTERM),
    )
    try:
        with harness:
            yield harness
            harness.wait()
    finally:
        with suppress(psutil.NoSuchProcess):
            for each in [*psutil.Process(harness.pid).children(recursive=True), harness]:
                each.kill()


@pytest.mark.slow
def test_twenty_kills_over_all_algorithms_lose_nothing(tmp_path: Path):
    report = tmp_path / "report.json"
    with chaos("--kills", 20, "--seed", 1, "--report", report) as harness:
        printed, _ = harness.communicate(timeout=1000)
    assert harness.returncode == 0, printed
    found = json.loads(report.read_text())
    kills = found["kills"]
    assert (len(kills) >= 20, found["defects"], found["recovered"]) == (True, [], found["trials"])
    assert {"launcher", "warm server", "resync run", "Snakemake"} < {kill["victim"] for kill in kills}
    assert {"SIGKILL", "SIGTERM"} == {kill["signal"] for kill in kills}
    killed = {VARIANTS.get(kill["variant"], {}).get("sync", BASE["sync"])["name"] for kill in kills}
    assert killed == set(option_names("sync", PACKAGE))
    last = printed.splitlines()[-2:]
    assert f"{len(kills)} kills in {found['trials']} runs" in "".join(last)


@pytest.mark.slow
def test_ctrl_c_prints_what_there_is_and_ends_all_processes():
    with chaos("--kills", 200) as harness:
        assert harness.stdout
        before = next(line for line in harness.stdout if " kills, " in line)
        others = psutil.Process(harness.pid).children(recursive=True)
        harness.send_signal(signal.SIGINT)
        after = harness.stdout.read()
    assert harness.returncode == 128 + signal.SIGINT
    assert before.startswith(("1 ", "2 ", "3 "))
    assert "seconds to continue" in after
    assert "0 defects" in after
    assert "interrupted" in after
    assert [each for each in others if each.is_running() and each.status() != psutil.STATUS_ZOMBIE] == []

"""What holds for every test: one thread a process, wandb offline, and no silent skips where all must run."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest

REQUIRE_ALL = os.environ.get("RESYNC_REQUIRE_ALL") == "1"

# Before torch is imported anywhere: several processes share few cores, and nothing may leave the machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["WANDB_MODE"] = "offline"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Under RESYNC_REQUIRE_ALL=1 a skipped test fails; only a GPU and real data are what no install can bring."""
    report = yield
    absent = item.get_closest_marker("gpu") is not None or "real_data" in getattr(item, "fixturenames", ())
    expected = hasattr(report, "wasxfail") or absent
    if REQUIRE_ALL and report.skipped and not expected:
        fail(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a module that is skipped as a whole."""
    report = yield
    if REQUIRE_ALL and report.skipped:
        fail(report)
    return report


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data that RESYNC_DATA names; a test that reads it is skipped where there is none."""
    if "RESYNC_DATA" not in os.environ:
        pytest.skip("RESYNC_DATA names no folder of real data")
    return Path(os.environ["RESYNC_DATA"])


def fail(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skipped report into a failed one that keeps the reason."""
    *_, reason = report.longrepr if isinstance(report.longrepr, tuple) else (report.longrepr,)
    report.outcome = "failed"
    report.longrepr = f"RESYNC_REQUIRE_ALL=1 allows no skip. {reason}"

"""What holds for every test: one thread a process, wandb offline, and no silent skips where all must run."""

import os
from collections.abc import Generator

import pytest

REQUIRE_ALL = os.environ.get("RESYNC_REQUIRE_ALL") == "1"

# Before torch is imported anywhere: several processes share few cores, and nothing may leave the machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["WANDB_MODE"] = "offline"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Under RESYNC_REQUIRE_ALL=1 a skipped test fails; only a GPU is something that no install can bring."""
    report = yield
    expected = hasattr(report, "wasxfail") or item.get_closest_marker("gpu") is not None
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


def fail(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skipped report into a failed one that keeps the reason."""
    *_, reason = report.longrepr if isinstance(report.longrepr, tuple) else (report.longrepr,)
    report.outcome = "failed"
    report.longrepr = f"RESYNC_REQUIRE_ALL=1 allows no skip. {reason}"

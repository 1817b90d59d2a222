"""What holds for every test: one thread per process, wandb offline, and no silent skips where all must run."""

import os
import signal
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

REQUIRE_ALL = os.environ.get("RESYNC_REQUIRE_ALL") == "1"
NO_DATA = "RESYNC_DATA names no folder of real data (docs/data.md)"
EXCUSED = (NO_DATA, "needs a CUDA device")
"""Reasons of a skip that no installation can remove."""

os.environ.pop("RESYNC_PREPARED", None)  # tests prepare data in folders of their own
# Before torch is imported anywhere: several processes share few cores, and nothing may leave the machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["WANDB_MODE"] = "offline"
# Tests that are started in the background would ignore Ctrl-C, and so would all processes that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Under RESYNC_REQUIRE_ALL=1 a skipped test fails, unless the machine lacks what no installation can bring."""
    report = yield
    if not hasattr(report, "wasxfail"):
        refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a module that is skipped as a whole."""
    report = yield
    refuse_skip(report)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files come first that take long: those with most slow tests, then those with most tests.

    A process has a file alone. If it began one that takes minutes when the others end, they would have nothing to do.
    """
    slow, all_tests = (
        Counter(item.path for item in of) for of in ([item for item in items if item.get_closest_marker("slow")], items)
    )
    items.sort(key=lambda item: (slow[item.path], all_tests[item.path]), reverse=True)


@pytest.fixture(autouse=True)
def _ends_its_wandb_session() -> Generator[None]:
    """A session that a test leaves open would take what a later one logs, and the processes that it starts."""
    yield
    assert "WANDB_SERVICE" not in os.environ, "this test leaves a session of wandb: close the log of its run"


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data that RESYNC_DATA names; a test that reads it is skipped where there is none."""
    if "RESYNC_DATA" not in os.environ:
        pytest.skip(NO_DATA)
    return Path(os.environ["RESYNC_DATA"])


DECLARED = Path(__file__).parents[1] / "paper_configs"


@pytest.fixture(scope="session")
def papers() -> Any:
    """The declared papers, read once: a `Suite`, for reading only."""
    from resync.papers.paper import load_suite  # after the variables of the environment above

    return load_suite(DECLARED)


@pytest.fixture
def verbs_know_the_papers(papers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """For verbs called in this process, each of which would read the declared papers again, in a second or more."""
    from resync.papers.paper import Suite, load_suite

    def known(configs: Path, **chosen: Any) -> Suite:
        names = chosen.get("papers") or papers.papers
        if configs.resolve() != DECLARED or not set(names) <= set(papers.papers):
            return load_suite(configs, **chosen)
        return Suite(*({name: of[name] for name in names} for of in (papers.papers, papers.expanded)))

    monkeypatch.setattr("resync.tools.cli.declare.load_suite", known)


def refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skipped report into a failed one that keeps the reason."""
    if not (REQUIRE_ALL and report.skipped):
        return
    *_, reason = report.longrepr if isinstance(report.longrepr, tuple) else (report.longrepr,)
    if str(reason).removeprefix("Skipped: ") not in EXCUSED:
        report.outcome = "failed"
        report.longrepr = f"RESYNC_REQUIRE_ALL=1 allows no skip. {reason}"

"""Snakemake's scheduler sets one timer at a time, however many jobs end."""

import inspect
import threading

import pytest
from snakemake.scheduling.job_scheduler import JobScheduler

from resync.base.processes import workflow_timer

PRINTED = """

onsuccess:
    print("set by", workflow.scheduler._schedule_reevalutation.__module__)
"""


class Scheduler:
    """What `keep_one` knows of Snakemake's scheduler, each of whose timers is a thread."""

    def __init__(self) -> None:
        self._open_jobs = threading.Semaphore(0)

    def _schedule_reevalutation(self, seconds: float) -> None:
        raise AssertionError("replaced")


class Timer:
    """A timer that ends when the test says so."""

    def __init__(self, seconds, end) -> None:
        self.seconds, self.end, self.started = seconds, end, False

    def start(self) -> None:
        self.started = True


@pytest.fixture
def timers(monkeypatch):
    made = []
    monkeypatch.setattr(threading, "Timer", lambda *given: made.append(Timer(*given)) or made[-1])
    return made


def test_no_second_timer_is_set_before_the_first_one_has_ended(timers):
    scheduler = Scheduler()
    workflow_timer.keep_one(scheduler)
    for _ in range(3):
        scheduler._schedule_reevalutation(10)
    [timer] = timers
    assert (timer.seconds, timer.started, timer.daemon) == (10, True, True)
    assert not scheduler._open_jobs.acquire(blocking=False)
    timer.end()
    assert scheduler._open_jobs.acquire(blocking=False)
    scheduler._schedule_reevalutation(5)
    assert [each.seconds for each in timers] == [10, 5]


def test_snakemake_still_sets_a_timer_at_each_look():
    """Otherwise `keep_one` has become needless."""
    assert "_schedule_reevalutation" in inspect.getsource(JobScheduler.schedule)
    assert "self._open_jobs.release()" in inspect.getsource(JobScheduler._schedule_reevalutation)


def test_the_workflow_replaces_it(workflow, fake_resync):
    with (workflow.directory / "Snakefile").open("a") as file:
        file.write(PRINTED)
    (workflow.directory / "src/resync/__main__.py").write_text(fake_resync)
    assert "set by resync.base.processes.workflow_timer" in workflow.snakemake("plan")

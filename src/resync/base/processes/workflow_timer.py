"""How often Snakemake looks for jobs without being told that one has ended.

Snakemake limits the jobs that it starts per time (`--max-jobs-per-timespan`, by default 100 per second). Each time it
has looked for jobs to start, it sets a timer of that length, at whose end it looks again (`_schedule_reevalutation`, as
of version 9.27). It also looks when a job ends. So after n jobs there are n timers, each of which sets its successor:
n looks per second at all jobs that are ready, which keep a core busy by themselves. One timer does the same.
tests/workflow/test_workflow_timer.py fails where a later version needs this no more.
"""

import threading
from typing import Any


def keep_one(scheduler: Any) -> None:
    """Let a scheduler of Snakemake set a timer only while it has none."""
    is_set = threading.Lock()

    def look_again() -> None:
        is_set.release()
        scheduler._open_jobs.release()

    def schedule(seconds: float) -> None:
        if is_set.acquire(blocking=False):
            timer = threading.Timer(seconds, look_again)
            timer.daemon = True  # Snakemake need not wait for it at its end
            timer.start()

    scheduler._schedule_reevalutation = schedule

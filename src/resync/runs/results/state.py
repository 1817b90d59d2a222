"""`state.json`: the state of a run that has no results yet, written by its processes and by their launcher.

A run that ends with results deletes the file: from then on summary.json holds everything.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from resync.base.errors import UserError, is_mistake, place_of
from resync.base.files import read_json, write_text
from resync.base.processes.signals import INTERRUPTED
from resync.runs.results.summary import NAME as SUMMARY
from resync.runs.results.summary import first_of
from resync.runs.run import Run

Status = Literal["not run", "running", "stopped", "failed", "finished", "diverged", "stale", "damaged"]
"""Status of a run:

- `not run`: it has not been trained at all;
- `running`: a job holds the run's lock;
- `stopped`: it was asked to stop, and the next job continues from its checkpoint;
- `failed`: its last job ended without results;
- `finished` and `diverged`: it has results;
- `stale`: it has results, but of another configuration;
- `damaged`: its files cannot be read, are not those that were written, or contradict each other.
"""

NAME = "state.json"
ANEW = "anew"
"""The file in a run's folder that asks its next training to begin at the first step."""
HOLD = "hold"
"""The file in a run's folder that has a step: there its training waits until it is asked to stop, once."""


@dataclass(frozen=True)
class Unfinished:
    """The state of a run without results: after which step, since when (UTC), and why.

    A run's processes write `running` when they begin; if no job holds the run's lock, they were killed since. After a
    `mistake` of the user, such as missing data, another attempt would end in the same way until somebody has mended it.
    """

    state: Literal["running", "stopped", "failed"]
    config_hash: str
    step: int
    reason: str
    time: str
    mistake: bool = False


_UNFINISHED = TypeAdapter(Unfinished)


def record(
    directory: Path, run: Run, state: Literal["running", "stopped", "failed"], step: int, reason: str,
    mistake: bool = False,
) -> Unfinished:  # fmt: skip
    """Write the state of a run, completely or not at all, and return it."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    written = Unfinished(state, run.hash, step, reason, now, mistake)
    write_text(directory / NAME, json.dumps(asdict(written), indent=2) + "\n")
    return written


def recorded(directory: Path) -> Unfinished | None:
    """The recorded state of a run; None if there is none. Raises ValueError for a file of another program."""
    file = directory / NAME
    try:
        return _UNFINISHED.validate_python(read_json(file))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise UserError(f"{file}: not a run's state: {first_of(error)}") from None


def begin(directory: Path, run: Run) -> None:
    """Record that processes of the run begin; the step is the last known one."""
    before = _recorded_if_readable(directory)
    record(directory, run, "running", before.step if before and before.config_hash == run.hash else 0, "")


def fail(
    directory: Path, run: Run, reason: str, mistake: bool = False, ended: Literal["stopped", "failed"] = "failed"
) -> None:
    """Record why the run failed, unless another of its processes has already done so: the first cause counts."""
    now = _recorded_if_readable(directory)
    if now is None or now.state == "running":
        record(directory, run, ended, now.step if now else 0, reason, mistake)


@contextmanager
def failures_recorded(directory: Path, run: Run) -> Iterator[None]:
    """Within the block, an exception makes the run `failed`, and Ctrl-C makes it `stopped`."""
    try:
        yield
    except KeyboardInterrupt:
        with suppress(OSError):
            reason = "interrupted at once: the next start continues from the last checkpoint"
            fail(directory, run, reason, ended="stopped")
        raise
    except BaseException as error:
        reason = str(error).partition("\n")[0]
        if not isinstance(error, (UserError, ConnectionError)):
            reason = f"{type(error).__name__}{': ' if reason else ''}{reason} ({place_of(error)})"
        with suppress(OSError):  # the disk may be what failed: then the launcher records that the run ended
            fail(directory, run, reason, is_mistake(error))
        raise


def conclude(directory: Path, run: Run, code: int) -> Unfinished | None:
    """Record how the processes ended if they could not do so themselves: killed, or asked to stop before training.

    Returns the state of the run from now on; None if it has results or a state that cannot be read.
    """
    now = _recorded_if_readable(directory)
    if code == os.EX_OK or now is None or now.state != "running":
        return now
    if code in (os.EX_TEMPFAIL, INTERRUPTED):
        return record(directory, run, "stopped", now.step, "asked to stop before the training began")
    return record(directory, run, "failed", now.step, f"its processes ended with exit code {code}")


def refuse_mistake(directory: Path, run: Run) -> None:
    """Raise ValueError if the last job of this configuration ended with a mistake that no further attempt can mend."""
    last = _recorded_if_readable(directory)
    if last is not None and last.mistake and last.config_hash == run.hash:
        raise UserError(f"not tried again: {last.reason}")


def ask_anew(directory: Path) -> None:
    """Ask the next training of a run that has results to begin at the first step, not at its last checkpoint.

    A run without results is left to continue: its training has been interrupted.
    """
    if (directory / SUMMARY).exists():
        (directory / ANEW).touch()


def clear(directory: Path) -> None:
    """Delete what is of a run without results only, when it has some: its state and the tables that have grown."""
    for file in [*directory.glob("*.csv.partial"), directory / NAME]:
        file.unlink(missing_ok=True)


def _recorded_if_readable(directory: Path) -> Unfinished | None:
    """The recorded state, or None if it is damaged: that must not keep a run from training, and is soon replaced."""
    with suppress(ValueError):
        return recorded(directory)
    return None

"""The end of a command: one line on standard error per user error, and an exit code."""

import os
import select
import signal
import sys
from collections.abc import Callable

from resync.processes.signals import INTERRUPTED
from resync.settings.errors import ConfigError

MISTAKE = 2
"""The exit code after an error of the user, in the configuration, the data or the installation."""


def exit_code(act: Callable[[], int | None]) -> int:
    """The exit code that `act` returns, 0 for None.

    2 for a user error, 1 for processes that cannot connect to each other, 130 for Ctrl-C, 141 if nobody reads the
    output any more. User errors are ConfigError, ValueError, OSError and a missing package of somebody else; every
    other exception is a defect and propagates.
    """
    try:
        code = act() or 0
        sys.stdout.flush()
        return code
    except ConfigError as error:
        lines = list(error.lines)
    except ConnectionError as error:
        if isinstance(error, BrokenPipeError) and _nobody_reads():
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what Python flushes at its end
            return 128 + signal.SIGPIPE
        print(f"resync: error: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        package = (error.name or "resync").partition(".")[0]
        if package == "resync":
            raise
        lines = [
            f"the package {package} is not installed; pip install 'resync-suite[suite]' installs what all verbs need"
        ]
    except (ValueError, OSError) as error:
        lines = [str(error)]
    except KeyboardInterrupt:
        print("resync: interrupted", file=sys.stderr)
        return INTERRUPTED
    for line in lines:
        print(f"resync: error: {line}", file=sys.stderr)
    return MISTAKE


def _nobody_reads() -> bool:
    """Whether standard output is a pipe whose reader has ended, as in `resync status | head -1`."""
    poll = select.poll()
    poll.register(1, 0)
    return any(happened & select.POLLERR for _, happened in poll.poll(0))

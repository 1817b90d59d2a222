"""The end of a command: one line on standard error per user error, and an exit code."""

import os
import select
import signal
import sys
import traceback
from collections.abc import Callable

from resync.base.errors import UserError, is_mistake, is_out_of_memory, place_of
from resync.base.processes.signals import INTERRUPTED
from resync.base.settings.errors import ConfigError

MISTAKE = 2
"""The exit code after an error of the user, in the configuration, the data or the installation."""


def exit_code(act: Callable[[], int | None]) -> int:
    """The exit code that `act` returns, 0 for None.

    2 for a UserError and for a missing package of somebody else; 1 for processes that cannot connect to each other, for
    an OSError and where memory runs out, with one line, and for any other exception, with its traceback; 130 for
    Ctrl-C; 141 if nobody reads the output any more.
    """
    try:
        code = act() or 0
        if sys.stdout:  # None where it was closed before the start
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("resync: interrupted", file=sys.stderr)
        return INTERRUPTED
    except ConfigError as error:
        lines = list(error.lines)
    except UserError as error:
        lines = [str(error)]
    except ModuleNotFoundError as error:
        if not is_mistake(error):
            traceback.print_exc()
            return 1
        package = str(error.name).partition(".")[0]
        lines = [
            f"the package {package} is not installed; pip install '.[suite]' in a clone installs what all verbs need"
        ]
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _nobody_reads():
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what Python flushes at its end
            return 128 + signal.SIGPIPE
        where = "" if isinstance(error, ConnectionError) else f" ({place_of(error)})"
        print(f"resync: error: {error}{where}", file=sys.stderr)
        return 1
    except Exception as error:
        if is_out_of_memory(error):
            said = str(error).partition("\n")[0] or "out of memory"
            print(f"resync: error: {said} ({place_of(error)})", file=sys.stderr)
        else:
            traceback.print_exc()
        return 1
    for line in lines:
        print(f"resync: error: {line}", file=sys.stderr)
    return MISTAKE


def _nobody_reads() -> bool:
    """Whether standard output is a pipe whose reader has ended, as in `resync status | head -1`."""
    poll = select.poll()
    poll.register(1, 0)
    return any(happened & select.POLLERR for _, happened in poll.poll(0))

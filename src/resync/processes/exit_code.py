"""The end of a command: one line on standard error per user error, and an exit code."""

import sys
from collections.abc import Callable

from resync.settings.errors import ConfigError


def exit_code(act: Callable[[], int | None]) -> int:
    """The exit code that `act` returns, 0 for None.

    2 for a user error, 1 for processes that cannot connect to each other, 130 for Ctrl-C. User errors are ConfigError,
    ValueError, OSError and a missing package of somebody else; every other exception is a defect and propagates.
    """
    try:
        return act() or 0
    except ConfigError as error:
        lines = list(error.lines)
    except ConnectionError as error:
        print(f"resync: error: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "resync":
            raise
        lines = [
            f"the package {error.name} is not installed; pip install 'resync-suite[suite]' installs what all verbs need"
        ]
    except (ValueError, OSError) as error:
        lines = [str(error)]
    except KeyboardInterrupt:
        print("resync: interrupted", file=sys.stderr)
        return 130
    for line in lines:
        print(f"resync: error: {line}", file=sys.stderr)
    return 2

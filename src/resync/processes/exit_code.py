"""How a command ends: one line on standard error for each mistake of the user, and an exit code."""

import sys
from collections.abc import Callable

from resync.settings.errors import ConfigError


def exit_code(act: Callable[[], int | None]) -> int:
    """The exit code that `act` returns, 0 for None.

    2 for a mistake of the user, 1 for processes that cannot meet, 130 for Ctrl-C. Mistakes are what is raised as
    ConfigError, ValueError or OSError; every other exception is a defect and passes.
    """
    try:
        return act() or 0
    except ConfigError as error:
        lines = list(error.lines)
    except ConnectionError as error:
        print(f"resync: error: {error}", file=sys.stderr)
        return 1
    except (ValueError, OSError) as error:
        lines = [str(error)]
    except KeyboardInterrupt:
        print("resync: interrupted", file=sys.stderr)
        return 130
    for line in lines:
        print(f"resync: error: {line}", file=sys.stderr)
    return 2

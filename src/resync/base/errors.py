"""What tells a mistake of the user from a defect of the program."""

import os
import traceback
from pathlib import Path

_PACKAGE = str(Path(__file__).parents[1]) + os.sep


class UserError(ValueError):
    """Wrong input, raised on purpose: the message says all that the user needs, and another attempt ends alike.

    A ValueError for users of the library. Any other exception of a run is a defect, or a fault that may pass.
    """


def is_mistake(error: BaseException) -> bool:
    """Whether only the user can mend it: wrong input, or a package of somebody else that is not installed."""
    if isinstance(error, ModuleNotFoundError):
        return (error.name or "resync").partition(".")[0] != "resync"
    return isinstance(error, UserError)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the machine or its GPU had no memory left, which torch says with a RuntimeError."""
    said = str(error)
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and ("out of memory" in said or "tried to allocate" in said)
    )


def place_of(error: BaseException) -> str:
    """`runs/train/loop.py:82`: the innermost line of this package that `error` passed, or else the innermost of all."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(_PACKAGE)]
    frame = (ours or frames)[-1]
    return f"{frame.filename.removeprefix(_PACKAGE)}:{frame.lineno}"

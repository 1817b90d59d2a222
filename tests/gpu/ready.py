"""Whether this Python can run the tests of this folder: nothing, or one line that says what is missing."""

from __future__ import annotations

import sys
from importlib.util import find_spec

TORCH = (2, 11)
PACKAGES = ("pytest", "numpy", "pydantic", "yaml", "torch", "torchvision")


def missing() -> str | None:
    """What this Python or machine lacks; None if it lacks nothing."""
    if sys.version_info < (3, 11):  # noqa: UP036 - whatever Python there is
        return f"Python 3.11 or newer, found {sys.version.split()[0]}"
    if absent := [name for name in PACKAGES if find_spec(name) is None]:
        return f"the packages {', '.join(absent)}"
    import torch

    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < TORCH:
        return f"torch {'.'.join(map(str, TORCH))} or newer, found {torch.__version__}"
    return None if torch.cuda.is_available() else "a CUDA device: torch finds none"


if __name__ == "__main__":
    lacks = missing()
    sys.exit(lacks and f"make test-gpu needs {lacks} (another Python: make test-gpu PYTHON=...)")

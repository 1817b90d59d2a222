"""Provenance of a run: time, machine, versions and commit."""

import platform
import socket
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "torchvision", "numpy", "scikit-learn", "sentencepiece", "sacrebleu", "wandb")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


VERSIONS = {"python": platform.python_version(), "resync": _version("resync-suite")} | {
    name: _version(name) for name in PACKAGES
}
"""Versions of Python and of the packages that affect results, read once for all runs of a warm process.

None for a package that is not installed.
"""


def now() -> str:
    """The current time in UTC, as ISO 8601 in whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def git() -> dict[str, Any] | None:
    """Commit of the checkout from which the code runs, and whether it has changes; None outside a checkout."""
    here = Path(__file__).parent

    def ask(*arguments: str) -> str:
        return subprocess.run(["git", "-C", here, *arguments], capture_output=True, text=True, check=True).stdout

    try:
        return {
            "commit": ask("rev-parse", "HEAD").strip(),
            "dirty": bool(ask("status", "--porcelain").strip()),
        }
    except (OSError, subprocess.CalledProcessError):
        return None


def host() -> str:
    """Name of this machine."""
    return socket.gethostname()

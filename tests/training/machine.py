"""What a test asks of the machine: programs that not every one has, and time, of which a slow one needs more."""

import os
import shutil
import time
from collections.abc import Callable

import psutil
import pytest

LIMIT = 900
"""Seconds after which a test fails that waits; less than the limit of a whole test."""


def until(condition: Callable[[], object], process: psutil.Process | None = None) -> None:
    """Wait for something that another process or thread brings about, or `process`, which must not end before."""
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert process is None or process.status() != psutil.STATUS_ZOMBIE, "it ended too early"
        assert time.monotonic() < deadline, f"nothing came of it within {LIMIT} s"
        time.sleep(0.01)


def program(name: str, package: str) -> str:
    """The path of a program; without it the test is skipped, and says which package of Debian has it."""
    path = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if path is None:
        pytest.skip(f"{name} is not installed: apt-get install {package}")
    return path

"""The tests of tests/gpu pass on the CPU too, and `make test-gpu` says in one line that it needs a GPU."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_they_pass_on_the_cpu():
    command = [sys.executable, "-m", "pytest", "-c", "tests/gpu/pytest.ini", "--rootdir", ".", "-p", "no:cacheprovider"]
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("RESYNC_", "PYTEST_"))}
    env = inherited | {"RESYNC_TEST_DEVICE": "cpu"}
    done = subprocess.run([*command, "tests/gpu"], cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    skips = re.findall(r"^SKIPPED \[\d+\] tests/gpu/\S+ (.*)$", done.stdout, re.MULTILINE)
    assert {reason.split(" ")[0] for reason in skips} <= {"FFCV", "on"}


def test_the_command_fails_in_one_line_without_a_gpu():
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "MAKEFLAGS": ""}
    command = ["make", "--silent", "test-gpu", f"PYTHON={sys.executable}"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    assert done.stderr.startswith("make test-gpu needs a CUDA device")
    assert done.stdout == ""

"""The tests of tests/gpu work on the CPU, and `make test-gpu` does not start without a GPU."""

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
    environment = inherited | {"RESYNC_TEST_DEVICE": "cpu"}
    done = subprocess.run([*command, "tests/gpu"], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    skips = re.findall(r"^SKIPPED \[\d+\] tests/gpu/\S+ (\S+)", done.stdout, re.MULTILINE)
    assert set(skips) <= {"FFCV", "on"}
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 45


def test_the_command_fails_in_one_line_without_a_gpu():
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "MAKEFLAGS": ""}
    command = ["make", "--silent", "test-gpu", f"PYTHON={sys.executable}"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode != 0, done.stdout) == (True, "")
    assert done.stderr.startswith("make test-gpu needs a CUDA device")

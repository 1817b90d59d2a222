"""RESYNC_REQUIRE_ALL=1 makes a skipped test fail, unless it lacks a GPU or real data."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

TESTS = """
import pytest
def test_gpu(): pytest.skip("needs a CUDA device")
def test_data(real_data): pass
def test_package(): pytest.importorskip("no_such_package", reason="not installed")
"""
MODULE = 'import pytest\npytest.skip("not installed", allow_module_level=True)\n'


def test_a_skip_fails_where_all_must_run(tmp_path):
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_functions.py").write_text(TESTS)
    (tmp_path / "test_module.py").write_text(MODULE)
    command = [sys.executable, "-m", "pytest", "--continue-on-collection-errors", "-p", "no:cacheprovider", tmp_path]
    environment = os.environ | {"RESYNC_REQUIRE_ALL": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment.pop("RESYNC_DATA", None)
    last = subprocess.run(command, env=environment, capture_output=True, text=True).stdout.splitlines()[-1]
    assert all(part in last for part in ("1 failed", "2 skipped", "1 error")), last

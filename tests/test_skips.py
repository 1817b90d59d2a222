"""RESYNC_REQUIRE_ALL=1 rejects all skips except those for lack of a GPU or of real data."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = """
import pytest

def test_of_a_gpu():
    pytest.skip("needs a CUDA device")

def test_of_data(real_data):
    pass

def test_that_could_be_installed(tmp_path):
    pytest.importorskip("no_such_package", reason="no_such_package is not installed")

@pytest.mark.skipif(True, reason="needs root")
def test_of_root():
    pass

@pytest.mark.skipif(True, reason="needs a CUDA device of the newest kind")
def test_of_another_reason():
    pass

def test_that_has_data_and_skips_for_another_reason(folder_of_data):
    pytest.skip("the package is missing")

@pytest.mark.xfail
def test_that_is_known_to_fail():
    assert False

@pytest.fixture
def folder_of_data(monkeypatch, request):
    monkeypatch.setenv("RESYNC_DATA", ".")
    return request.getfixturevalue("tmp_path")
"""
REFUSED = {
    "test_that_could_be_installed",
    "test_of_root",
    "test_of_another_reason",
    "test_that_has_data_and_skips_for_another_reason",
}


def failures(folder: Path, **environment: str) -> set[str]:
    """The tests, and modules, that fail because they are skipped; the others run or are skipped."""
    shutil.copy(ROOT / "tests/conftest.py", folder)
    (folder / "test_some.py").write_text(TESTS)
    (folder / "test_module.py").write_text("import pytest\npytest.skip('nothing here', allow_module_level=True)\n")
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("RESYNC_", "PYTEST_"))}
    command = [sys.executable, "-m", "pytest", "--continue-on-collection-errors", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--rootdir", folder, folder], capture_output=True, text=True, cwd=folder, env=inherited | environment
    )
    found = re.findall(r"^(?:FAILED|ERROR) test_(?:some\.py::(\w+)|(module)\.py)", done.stdout, re.MULTILINE)
    failed = {test or module for test, module in found}
    counts = {
        word: int(count)
        for count, word in re.findall(r"(\d+) (failed|errors?|skipped|xfailed)\b", done.stdout.splitlines()[-1])
    }
    assert sum(counts.values()) == 8, done.stdout
    assert done.stdout.count("RESYNC_REQUIRE_ALL=1 allows no skip") >= len(failed)
    return failed


def test_a_skip_fails_where_all_must_run_unless_the_machine_lacks_something(tmp_path: Path):
    assert failures(tmp_path, RESYNC_REQUIRE_ALL="1") == REFUSED | {"module"}


def test_a_skip_is_a_skip_elsewhere(tmp_path: Path):
    assert failures(tmp_path) == set()

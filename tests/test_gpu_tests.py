"""The tests of tests/gpu work: on the CPU, with the few packages that `make test-gpu` needs, and not without a GPU."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NEEDED = {"pytest", "numpy", "pydantic", "pyyaml", "torch", "torchvision", "jinja2", "pillow"}
"""The packages that the tests need, and those that torch and torchvision need themselves."""
MODULES = {"pytest-xdist": "xdist"}

# A Python without these packages: no finder knows their modules, nor that they are installed.
SITECUSTOMIZE = """
import re, sys

PACKAGES, MODULES = {packages!r}, {modules!r}

class Without:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] in MODULES else self.finder.find_spec(name, path, target)

    def find_distributions(self, *arguments, **options):
        if hasattr(self.finder, "find_distributions"):
            for found in self.finder.find_distributions(*arguments, **options):
                if re.sub("[-_.]+", "-", found.metadata["Name"]).lower() not in PACKAGES:
                    yield found

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""


def refused() -> set[str]:
    """Every package that the project may use, but those that these tests need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    return {re.match(r"[\w-]+", line)[0] for line in lines} - NEEDED | {"resync-suite"}


def gpu_tests(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command of `make test-gpu`, without its check of the machine."""
    command = [sys.executable, "-m", "pytest", "-c", "tests/gpu/pytest.ini", "--rootdir", ".", "-p", "no:cacheprovider"]
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("RESYNC_", "PYTEST_"))}
    return subprocess.run([*command, *arguments], cwd=ROOT, env=inherited | environment, capture_output=True, text=True)


@pytest.mark.slow
def test_they_pass_on_the_cpu_with_few_packages(tmp_path: Path):
    packages = refused()
    modules = {MODULES.get(name, name.replace("-", "_")) for name in packages} - {"resync_suite"}
    assert {"pandas", "wandb", "sacrebleu", "tqdm", "scipy", "xdist", "pytest_timeout"} <= modules
    (tmp_path / "sitecustomize.py").write_text(SITECUSTOMIZE.format(packages=packages, modules=modules))
    hidden = subprocess.run(
        [sys.executable, "-c", "import pandas"], env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True
    )
    assert b"No module named 'pandas'" in hidden.stderr
    done = gpu_tests("tests/gpu", RESYNC_TEST_DEVICE="cpu", PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    skips = re.findall(r"^SKIPPED \[\d+\] tests/gpu/\S+ (.*)$", done.stdout, re.MULTILINE)
    assert {reason.split(" ")[0] for reason in skips} == {"FFCV", "on"}
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 45


def test_ffcv_on_the_cpu():
    pytest.importorskip("ffcv", reason="FFCV is not installed (docs/data.md)")
    done = gpu_tests("tests/gpu/test_gpu_ffcv.py", RESYNC_TEST_DEVICE="cpu")
    assert "1 passed" in done.stdout


def test_they_are_skipped_for_want_of_a_gpu_and_for_no_other_reason():
    done = gpu_tests("tests/gpu/test_gpu_parts.py", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0
    reasons = re.findall(r"^SKIPPED \[\d+\] \S+ (.*)$", done.stdout, re.MULTILINE)
    assert set(reasons) == {"needs a CUDA device"}
    assert not re.search(r"\d+ passed", done.stdout)


def test_the_command_fails_in_one_line_without_a_gpu():
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "MAKEFLAGS": ""}
    command = ["make", "--silent", "test-gpu", f"PYTHON={sys.executable}"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    said = "make test-gpu needs a CUDA device: torch finds none (another Python: make test-gpu PYTHON=...)"
    assert done.stderr.splitlines()[0] == said
    assert done.stdout == ""

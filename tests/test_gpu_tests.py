"""The tests of tests/gpu pass on the CPU with the packages that `make test-gpu` needs; it fails without a GPU."""

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
# A Python without these packages: no finder knows their modules, nor that they are installed.
SITECUSTOMIZE = """
import re, sys

PACKAGES = {packages!r}
MODULES = {{"xdist", *(name.replace("-", "_") for name in PACKAGES)}}

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


@pytest.mark.slow
def test_they_pass_on_the_cpu_with_few_packages(tmp_path: Path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    packages = {re.match(r"[\w-]+", line)[0] for line in lines} - NEEDED | {"resync-suite"}
    (tmp_path / "sitecustomize.py").write_text(SITECUSTOMIZE.format(packages=packages))
    command = [sys.executable, "-m", "pytest", "-c", "tests/gpu/pytest.ini", "--rootdir", ".", "-p", "no:cacheprovider"]
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("RESYNC_", "PYTEST_"))}
    env = inherited | {"RESYNC_TEST_DEVICE": "cpu", "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([*command, "tests/gpu"], cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    skips = re.findall(r"^SKIPPED \[\d+\] tests/gpu/\S+ (.*)$", done.stdout, re.MULTILINE)
    assert {reason.split(" ")[0] for reason in skips} == {"FFCV", "on"}


def test_the_command_fails_in_one_line_without_a_gpu():
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "MAKEFLAGS": ""}
    command = ["make", "--silent", "test-gpu", f"PYTHON={sys.executable}"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    assert done.stderr.startswith("make test-gpu needs a CUDA device")
    assert done.stdout == ""

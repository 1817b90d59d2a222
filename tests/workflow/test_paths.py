"""A clone in a folder whose name a shell would take apart."""

import os
import subprocess
import sys
from pathlib import Path

from conftest import FAKE_RESYNC, ROOT, SOURCES, Workflow

RUN = "results/smoke/qsr/vit_b16_b4096/h4/seed0"
INTERPRETER = "Path('interpreter').write_text(sys.executable)"


def test_rules_run_in_a_clone_of_any_name(tmp_path: Path):
    """With the virtual environment in the clone, where `make` puts it."""
    clone = tmp_path / 'it\'s my "clöne"; $(touch run)'
    clone.mkdir()
    Workflow(clone, ROOT, SOURCES)
    (clone / ".venv").symlink_to(Path(sys.prefix))
    (clone / "src/resync/__main__.py").write_text(f"{FAKE_RESYNC}\n{INTERPRETER}\n")
    python = clone / ".venv/bin/python"
    command = [python, "-m", "snakemake", "--profile", "workflow/profiles/local", f"{RUN}/summary.json"]
    environment = os.environ | {"PYTHONPATH": "src", "PATH": os.defpath}
    found = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr
    assert (clone / "interpreter").read_text() == str(python)
    assert not (clone / "run").exists()

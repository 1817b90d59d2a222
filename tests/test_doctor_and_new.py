"""A newcomer's first commands: what the machine has, and something new in a clone, which works as it is written."""

import json
import re
from pathlib import Path

import pytest
import yaml
from launched import copy_files, in_clone

from resync.tools import doctor
from resync.tools.cli import main

ROOT = Path(__file__).parents[1]
COPIED = (
    "src/resync", "docs/extend.md", "docs/own_experiment.md", "paper_configs/scales",
    "tests/training/runs.py", "tests/training/processes.py", "tests/training/test_equivalence.py", "pyproject.toml",
)  # fmt: skip
NEW = ("paper", "mine"), ("experiment", "mine/second"), ("algorithm", "TUG"), ("model", "flat"), ("figure", "sticks")
# One process: the imports take most of the time. Runs are shorter than in the example; no figure is drawn of them.
COMMANDS = """
from pathlib import Path
from resync.tools.cli import main
from resync.papers.paper import load_suite

assert main(["list"]) == 0
for run in load_suite(Path("paper_configs")).runs("mine", "smoke", "second"):
    if run.seed == 0:
        out = Path("results", run.directory)
        out.mkdir(parents=True)
        (out / "run.yaml").write_text(run.to_yaml())
        assert main(["train", "--config", str(out / "run.yaml"), "--out", str(out)]) == 0
trial = ["train", "--config", str(out / "run.yaml"), "--out", "trial", "--set", "epochs=2"]
assert main([*trial, "--set", "sync={name: tug}", "--set", "model={name: flat}"]) == 0
assert main(["render", "mine/accuracy"]) == 0
assert main(["render", "mine/sticks"]) == 0
assert main(["audit", "mine"]) == 0
from resync.tools.cli.ending import ending
site = Path("results/smoke/site/index.html")  # an old one, without this paper
site.parent.mkdir(parents=True)
site.touch()
print(ending(load_suite(Path("paper_configs")), "smoke", ["mine"], [], 1.0)[0])
"""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone with one new thing of each kind."""
    clone = tmp_path_factory.mktemp("clone")
    copy_files(ROOT, COPIED, clone)
    calls = "; ".join(f"assert main(['new', {kind!r}, {name!r}]) == 0" for kind, name in NEW)
    code, output = in_clone(clone, f"from resync.tools.cli import main; {calls}")
    assert code == 0, output
    assert {line.split()[0] for line in output.splitlines()} >= {
        "paper_configs/mine/paper.yaml",
        "paper_configs/mine/experiments/second.yaml",
        "src/resync/workers/sync/tug.py",
        "src/resync/workers/sync/options/tug.py",
        "next:",
    }
    return clone


@pytest.mark.slow
def test_what_is_new_is_valid_trained_drawn_and_audited(clone: Path):
    paper = clone / "paper_configs/mine/paper.yaml"
    settings = yaml.safe_load(paper.read_text())
    settings["figures"][0]["series"] = ["second"]
    settings["figures"].append(settings["figures"][0] | {"id": "sticks", "kind": "sticks"})
    paper.write_text(json.dumps(settings))
    code, output = in_clone(clone, COMMANDS)
    assert code == 0, output
    assert (clone / "figures/smoke/mine/sticks.pdf").exists()
    assert re.search(r"^Done in 0:00:01: 3 of \d+ runs finished, 2 of 3 figures", output, re.MULTILINE)
    assert re.search(r"^(Open)? +figures/smoke/mine/accuracy.pdf +and 1 more$", output, re.MULTILINE)
    answer = r"^QSR sends less than constant H = 4\.\n +follows from the settings, without a run: QSR \d"
    assert re.search(answer, output, re.MULTILINE)
    assert "qsr_is_as_accurate" in (clone / "results/smoke/mine/audit.json").read_text()
    schema = json.loads((clone / "workflow/schemas/experiment.schema.json").read_text())
    assert {"sync.tug", "models.flat"} <= schema["$defs"].keys()


@pytest.mark.slow
def test_a_new_algorithm_is_trained_on_several_processes_without_being_listed(clone: Path):
    ours = "for name in ('runs', 'processes'): sys.modules.pop(name, None)"
    flags = ["-q", "-p", "no:cacheprovider", "tests/training/test_equivalence.py", "-k", "tug"]
    code, output = in_clone(clone, f"import sys, pytest\n{ours}\nsys.exit(pytest.main({flags!r}))")
    assert code == 0, output
    assert "2 passed" in output


def test_the_doctor_says_what_is_there_and_what_is_missing(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    (tmp_path / "mnist-png/train").mkdir(parents=True)
    monkeypatch.setenv("RESYNC_DATA", str(tmp_path))
    monkeypatch.delenv("RESYNC_PREPARED", raising=False)
    assert main(["doctor", "--json"]) == 0
    found = {each["name"].partition(" (")[0]: each for each in json.loads(capsys.readouterr().out)}
    assert {"Python", "torch", "CUDA", "NCCL", "gloo", "disk", "Slurm", "ffcv", "deepspeed"} <= found.keys()
    assert found["data mnist_14"]["state"] == "ok"
    assert found["data shakespeare_char"]["state"] == "optional"
    assert f"not found at {tmp_path}/shakespeare-char/input.txt.gz" in found["data shakespeare_char"]["found"]
    assert found["data shakespeare_char"]["remedy"].startswith("curl ")
    assert found["gloo"]["state"] == found["torch"]["state"] == "ok"


def test_data_get_downloads_what_is_missing_and_has_an_address(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/curl").write_text('#!/bin/sh\nmkdir -p "$RESYNC_DATA/shakespeare-char"; touch "$4"\n')
    (tmp_path / "bin/curl").chmod(0o755)
    monkeypatch.setattr("sys.executable", str(tmp_path / "bin/python"))
    monkeypatch.setenv("RESYNC_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("RESYNC_PREPARED", raising=False)
    (tmp_path / "data").mkdir()
    assert main(["data", "get", "shakespeare_char"]) == 0
    assert "input.txt, which the workflow prepares" in capsys.readouterr().out
    assert main(["data", "get", "cifar10_lossless_4k"]) == 1
    assert "-> see docs/data.md" in capsys.readouterr().out


def test_outside_of_a_clone_the_doctor_fails_and_nothing_is_new_or_listed(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["list"]) == 2
    assert "paper_configs: not here, allowed: a clone" in capsys.readouterr().err
    assert main(["new", "model", "flat"]) == 2
    assert "start in a clone of the repository" in capsys.readouterr().err
    assert main(["doctor"]) == 1
    assert "MISSING  papers: paper_configs is not here -> start in a clone" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("sinfo", "found"),
    [
        ("sleep 60", "sinfo gives no answer within 0.3 s"),
        ("echo sinfo: fatal: no configuration >&2; exit 1", "no cluster answers here (fatal: no configuration)"),
        ("exit 3", "no cluster answers here (exit code 3)"),
        (None, "sinfo: No such file or directory"),
    ],
)
def test_a_slurm_that_does_not_answer_is_a_line_of_its_own(sinfo, found, tmp_path: Path, monkeypatch):
    for name, script in (("sbatch", "true"), ("sinfo", sinfo)):
        if script:
            (tmp_path / name).write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin; {script}\n")
            (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(doctor, "_SLURM_SECONDS", 0.3)
    assert str(doctor._slurm()) == f"-        Slurm: {found}"

"""The scripts of the pages work as they stand there; that of docs/library.md with every algorithm of its table."""

import json
import re
import runpy
import shutil
import subprocess
from collections import Counter
from importlib import import_module
from pathlib import Path

import torch
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from resync.workers.sync import options

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/library.md").read_text()
[SCRIPT] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
ALGORITHMS = re.findall(r"\| `(resync\.\w+\(.*?\))` \|", PAGE)
LOOP = """
import torch
T, W = 60, 2
model, loss, evaluate = torch.nn.Linear(2, 1), torch.nn.MSELoss(), lambda model: print(sync)
optimizer = torch.optim.SGD(model.parameters(), lr=0.008)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, T)
loader = [(torch.ones(4, 2), torch.ones(4, 1))] * T
"""
"""What the lines of README attach to."""


def test_every_algorithm_is_in_the_table():
    assert {re.match(r"resync\.(\w+)", algorithm)[1] for algorithm in ALGORITHMS} == set(options.__all__)


def test_the_script_runs_with_every_algorithm(tmp_path, capfd):
    """One start of the processes for all: the script's loop, once a line of the table."""
    [shown] = re.findall(r"resync\.attach\(model, optimizer, (.*), total_steps", SCRIPT)
    assert shown in ALGORITHMS
    head, body = SCRIPT.split("torch.manual_seed", 1)
    body, tail = ("torch.manual_seed" + body).split("dist.destroy_process_group()")
    loops = "".join(body.replace(shown, algorithm) for algorithm in ALGORITHMS)
    (tmp_path / "script.py").write_text(f"{head}{loops}dist.destroy_process_group(){tail}")
    launch(tmp_path / "script.py", processes=2)
    printed = capfd.readouterr().out
    found = re.findall(r"rank (\d): f\(1\) = (\S+) after (\d+) rounds of 60 steps", printed)
    zero, one = ([result for rank, *result in found if rank == each] for each in "01")
    assert len(zero) == len(ALGORITHMS)
    # Both evaluate the same average model.
    assert zero == one


def test_the_script_of_the_packages_page_runs(tmp_path, capfd):
    [script] = re.findall(r"```python\n(.*?)```", (ROOT / "PACKAGE.md").read_text(), re.DOTALL)
    (tmp_path / "script.py").write_text(script)
    launch(tmp_path / "script.py", processes=1)
    assert capfd.readouterr().out.startswith("DiLoCo(")


def launch(script: Path, processes: int) -> None:
    """As torchrun starts it, but forked: the processes need not import torch again."""
    settings = LaunchConfig(
        1, 1, processes, rdzv_backend="c10d", rdzv_endpoint="localhost:0", max_restarts=0, start_method="fork"
    )
    import_module("torch._dynamo")
    elastic_launch(settings, _run)(str(script))


def _run(script: str) -> None:
    """The launcher sends back what this returns: nothing, for modules cannot be sent."""
    runpy.run_path(script, run_name="__main__")


def patched(program: str, stub: str) -> None:
    """Write what stands for a foreign program, and change it as docs/trainers.md says."""
    pattern = rf"```diff\n(--- a/{program}\n.*?)```"
    [patch] = re.findall(pattern, (ROOT / "docs/trainers.md").read_text(), re.DOTALL)
    Path(program).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "tests/data" / stub, program)
    subprocess.run(["git", "apply", "-"], input=patch, text=True, check=True)


def test_torchvisions_reference_with_the_patch_of_the_page_resumes_on_all_ranks(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    patched("references/classification/train.py", "torchvision_train.txt")
    for epochs, resume in ((1, ""), (2, "checkpoint.pth")):
        arguments = {"resume": resume, "start_epoch": 0, "epochs": epochs, "output_dir": "."}
        monkeypatch.setenv("ARGUMENTS", json.dumps(arguments))
        launch(Path("references/classification/train.py"), processes=2)
        evaluated = re.findall(r"evaluated (\d+\.\d{6})", capfd.readouterr().out)
        assert len(evaluated) == 2  # by each rank, once: the second start goes on after the first epoch
        assert len({*evaluated}) == 1  # the average
    saved = [torch.load(f"checkpoint.pth.{rank}") for rank in (0, 1)]
    assert [state["epoch"] for state in saved] == [1, 1]
    assert not torch.equal(*(state["model"]["0.weight"] for state in saved))  # each its own


def test_nanogpt_with_the_patch_of_the_page_saves_and_resumes_alike_on_all_ranks(tmp_path, capfd, monkeypatch):
    """Each rank draws its own batches also to evaluate; the best step must be the same for all."""
    monkeypatch.chdir(tmp_path)
    patched("train.py", "nanogpt_train.txt")
    for init_from in ("scratch", "resume"):
        monkeypatch.setenv("INIT_FROM", init_from)
        launch(Path("train.py"), processes=2)
        printed = capfd.readouterr().out
        said = Counter(re.findall(r"step \d+: train loss \d\.\d{4}, val loss \d\.\d{4}", printed))
        assert {*said.values()} == {2}
        saved = [torch.load(f"out/ckpt_{rank}.pt") for rank in (0, 1)]
        assert saved[0]["iter_num"] == saved[1]["iter_num"] > 0
    resumed = dict(re.findall(r"rank (\d) resumes after step (\d+)", printed))
    assert resumed.keys() == {"0", "1"}
    assert len({*resumed.values()}) == 1


def test_the_lines_of_readme_belong_into_an_ordinary_loop(tmp_path, capfd):
    [lines] = re.findall(r"```python\n(import resync\n.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "script.py").write_text(LOOP + lines)
    launch(tmp_path / "script.py", processes=1)
    assert "step 60 of 60" in capfd.readouterr().out

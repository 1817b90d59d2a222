"""The scripts of the pages work as they stand there; that of docs/library.md with every algorithm of its table."""

import re
import runpy
from importlib import import_module
from pathlib import Path

from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from resync.sync import options

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/library.md").read_text()
[SCRIPT] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
ALGORITHMS = re.findall(r"\| `(resync\.\w+\(.*?\))` \|", PAGE)


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

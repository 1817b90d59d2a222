"""The examples of docs/ work as they stand there; that of docs/library.md with every method of its table."""

import re
import runpy
from importlib import import_module
from pathlib import Path

from torch.distributed.launcher.api import LaunchConfig, elastic_launch

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/library.md").read_text()
[SCRIPT] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
LINES = re.findall(r"`(sync = resync\.\w+\(.*?\))` \|", PAGE)


def test_every_method_is_in_the_table():

    assert {re.search(r"resync\.(\w+)", line)[1] for line in LINES} == set(import_module("resync.methods").METHODS)


def test_the_script_runs_with_every_method(tmp_path, capfd):
    """One start of the processes for all methods: the script's loop, once a line of the table."""
    [shown] = re.findall(r"^sync = .*$", SCRIPT, re.MULTILINE)
    assert shown in LINES
    head, body = SCRIPT.split("torch.manual_seed", 1)
    body, tail = ("torch.manual_seed" + body).split("dist.destroy_process_group()")
    script = head + "".join(body.replace(shown, line) for line in LINES) + "dist.destroy_process_group()" + tail
    (tmp_path / "script.py").write_text(script)
    # As torchrun starts it, but forked: the processes need not import torch again.
    settings = LaunchConfig(
        1, 1, 2, rdzv_backend="c10d", rdzv_endpoint="localhost:0", max_restarts=0, start_method="fork"
    )
    elastic_launch(settings, _run)(str(tmp_path / "script.py"))
    printed = capfd.readouterr().out
    found = re.findall(r"rank (\d): f\(1\) = (\S+) after (\d+) rounds of 60 steps", printed)
    zero, one = ([result for rank, *result in found if rank == each] for each in "01")
    assert len(zero) == len(LINES)
    # Both evaluate the same average model.
    assert zero == one


def _run(script: str) -> None:
    """The launcher sends back what this returns: nothing, for modules cannot be sent."""
    runpy.run_path(script, run_name="__main__")

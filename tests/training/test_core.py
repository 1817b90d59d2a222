"""The algorithms in somebody else's training loop need no package but those that an installation without extras has."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MODULES = {"pillow": "PIL"}
SCRIPT = """
import sys
for name in {blocked!r}:
    sys.modules[name] = None  # importing it fails
import torch
import torch.distributed as dist
import resync

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
for method, options in {methods!r}.items():
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = resync.attach(model, optimizer, getattr(resync, method)(**options))
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    with sync.consensus():
        print(method, model.weight.sum().item())
dist.destroy_process_group()
"""
METHODS = {"AllReduce": {}, "LocalSGD": {"period": 2}, "SGP": {}, "SlowMo": {"period": 2, "base": "sgp"}}


def blocked() -> list[str]:
    """The modules of every package that only an extra brings."""
    extras = [line for lines in PROJECT["optional-dependencies"].values() for line in lines]
    names = {re.match(r"[\w-]+", line)[0] for line in extras}
    return sorted(MODULES.get(name, name.replace("-", "_")) for name in names)


def test_the_library_needs_the_core_packages_only():
    script = SCRIPT.format(blocked=blocked(), methods=METHODS)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(METHODS)


def test_a_verb_without_its_packages_says_what_to_install(tmp_path: Path):
    block = f"import sys; sys.modules.update(dict.fromkeys({blocked()!r})); from resync.tools.cli import main; "
    end = f"sys.exit(main(['audit', '--results', {str(tmp_path)!r}]))"
    done = subprocess.run([sys.executable, "-c", block + end], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert re.fullmatch(r"resync: error: the package \w+ is not installed; pip install '.\[suite\]' .*\n", done.stderr)

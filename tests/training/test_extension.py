"""The files of docs/extend.md, put beside a copy of the package, work from the configuration to the figure."""

import json
import re
import shutil
from pathlib import Path

import pytest
from launched import in_clone

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/extend.md").read_text()
FILES = dict(re.findall(r"^`((?:src|paper_configs)/[\w./]+)`\n\n```\w+\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL))
[LINE] = re.findall(r"^sync = .*$", PAGE, re.MULTILINE)
VERB = "import sys; from resync.tools.cli import main; sys.exit(main"
COMMANDS = f"""
import sys
from pathlib import Path

from resync.tools.cli import main
from resync.papers.paper import load_suite

assert main(["list"]) == 0
assert main(["plan", "demo", "--write", "plan"]) == 0
for run in load_suite(Path("paper_configs")).runs("demo", "smoke"):
    out = Path("results", run.directory)
    out.mkdir(parents=True)
    Path(f"{{run.series}}.yaml").write_text(run.to_yaml())
    assert main(["train", "--config", f"{{run.series}}.yaml", "--out", str(out)]) == 0
assert main(["render", "demo/fig1"]) == 0

import torch
import resync
from resync.workers.sync.options.pull import Pull

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{LINE}
model(torch.ones(1, 2)).sum().backward()
optimizer.step()
assert sync.algorithm.strength == 0.2
print("steps", sync.steps)
"""


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone with the new files, and none changed, after the commands."""
    clone = tmp_path_factory.mktemp("extended")
    shutil.copytree(ROOT / "src/resync", clone / "src/resync")
    shutil.copytree(ROOT / "paper_configs/scales", clone / "paper_configs/scales")
    for name, text in FILES.items():
        assert not (clone / name).exists()
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_text(text)
    return clone


def test_new_components_are_configured_planned_trained_and_drawn(extended: Path):
    code, output = in_clone(extended, COMMANDS, WANDB_MODE="disabled")
    assert code == 0, output
    assert output.splitlines()[-1] == "steps 1"
    plans = {entry["run"]: entry for entry in json.loads((extended / "plan.json").read_text())}
    for series in ("parallel", "pull"):
        entry = plans[f"demo/digits/{series}/seed0"]
        summary = json.loads((extended / f"results/smoke/demo/digits/{series}/seed0/summary.json").read_text())
        assert entry["parameters"] == 64 * 10 + 10
        assert entry["volume_percent"] == summary["volume_percent"] == 100
        metrics = (extended / f"results/smoke/demo/digits/{series}/seed0/metrics.csv").read_text().splitlines()
        last = dict(zip(metrics[0].split(","), metrics[-1].split(","), strict=True))
        assert float(last["val_top1"]) > 60
    assert {path.name for path in (extended / "figures/smoke/demo").iterdir()} >= {"fig1.pdf", "fig1.png"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("strength: 0.2", "strength: 2", "sync.strength: found 2, allowed: number > 0 and <= 1"),
        ("name: pull, strength", "name: pul, strength", "allowed: adpsgd, .*, pull, .*; did you mean 'pull'"),
        ("{name: logistic}", "{name: logistic, bais: true}", "bais: unknown key, .*; did you mean 'bias'"),
        ("{name: digits}", "{name: sentences}\n  steps_per_epoch: 4", "found logistic for classification, allowed: "),
    ],
)
def test_their_options_are_checked_like_any_others(extended: Path, tmp_path: Path, old: str, new: str, message: str):
    shutil.copytree(extended / "paper_configs", tmp_path / "configs")
    file = tmp_path / "configs/demo/experiments/digits.yaml"
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))
    code, output = in_clone(extended, f"{VERB}(['list', '--configs', {str(tmp_path / 'configs')!r}]))")
    assert code == 2
    assert re.search(message, output)


def test_schemas_have_them_too(extended: Path):
    assert in_clone(extended, f"{VERB}(['schema', '--directory', 'schemas']))")[0] == 0
    schema = json.loads((extended / "schemas/experiment.schema.json").read_text())
    assert schema["$defs"]["sync.pull"]["properties"]["strength"]["description"] == "fraction of the way to move"
    assert "render.final_bars" in json.loads((extended / "schemas/paper.schema.json").read_text())["$defs"]

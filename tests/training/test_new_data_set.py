"""A data set that is added by its declaration alone, as docs/data.md shows it, and declarations that cannot be read."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from launched import in_clone
from PIL import Image
from runs import BASE

from resync.base.settings.errors import ConfigError
from resync.tasks import data
from resync.tasks.data_sets.declaration import data_set

ROOT = Path(__file__).parents[2]
PREPARED_CHECKED_AND_TRAINED = """
from resync.tools.cli import main

for command in ("data prepare leaves", "data check leaves", "train --config run.yaml --out run"):
    assert main(command.split()) == 0
"""


def example() -> str:
    """The declaration in docs/data.md."""
    found = re.search(
        r"```yaml\n# src/resync/tasks/data/leaves.yaml\n(.*?)```", (ROOT / "docs/data.md").read_text(), re.DOTALL
    )
    assert found
    return found[1]


def write_leaves(folder: Path) -> None:
    """Images of three colours, in folders of their classes."""
    generator = np.random.default_rng(0)
    for split, number in (("train", 8), ("val", 2)):
        for channel, tree in enumerate(("ash", "beech", "oak")):
            (folder / split / tree).mkdir(parents=True)
            for index in range(number):
                pixels = generator.integers(100, size=(16, 16, 3), dtype=np.uint8)
                pixels[..., channel] += 100
                Image.fromarray(pixels).save(folder / split / tree / f"{index}.png")


def test_a_data_set_is_added_by_its_yaml_alone(tmp_path: Path):
    shutil.copytree(ROOT / "src/resync", tmp_path / "src/resync")
    (tmp_path / "src/resync/tasks/data/leaves.yaml").write_text(example())
    write_leaves(tmp_path / "data/leaves")
    changes = {"data": {"name": "leaves"}, "batch_size": 8, "steps_per_epoch": 3, "epochs": 8}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(BASE | changes))
    code, output = in_clone(tmp_path, PREPARED_CHECKED_AND_TRAINED, RESYNC_DATA=str(tmp_path / "data"))
    assert code == 0, output
    assert "leaves: train images per class: 8 8 8\n" in output
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert (summary["status"], summary["data"]["variant"], summary["steps"]) == ("finished", "leaves", 24)
    assert summary["best"]["val_top1"] > 90
    assert yaml.safe_load((tmp_path / "run/run.yaml").read_text())["data"]["augmentation"] == "crop_flip"


PREPARE = {"sources": [{"folder": "tiny", "variant": "tiny"}], "train_per_class": 1, "val_per_class": 1}
GREY = {"mean": [0.5], "std": [0.5]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reader": {"kind": "memory", **GREY}}, ""),
        ({"reader": {"kind": "memry", **GREY}}, "reader.kind: found 'memry', allowed: "),
        ({"reader": {"kind": "memory", **GREY, "mean": [0.5] * 3}}, "reader.mean: found 3 numbers, allowed: 1"),
        ({"reader": {"kind": "stream", **GREY}}, "reader.kind: found stream, allowed: with prepare, and with "),
        (
            {"reader": {"kind": "memory", **GREY}, "prepare": {**PREPARE, "streaming": {}}},
            "reader.kind: found memory, ",
        ),
        ({"reader": {"kind": "text", "max_tokens": 9}}, "reader.kind: found text, allowed: with prepare_text"),
        (
            {"reader": {"kind": "memory", **GREY}, "options": {"augmentation": {"type": "boolean"}}},
            "options: unknown key",
        ),
    ],
)
def test_a_reader_fits_the_rest_of_its_declaration(changes: dict[str, Any], message: str, tmp_path: Path):
    facts = {"train_samples": 3, "val_samples": 3, "num_classes": 3, "input_shape": [1, 8, 8]}
    file = tmp_path / "package/tasks/data/tiny.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(yaml.safe_dump({"description": "tiny", "facts": facts, "prepare": PREPARE} | changes))
    if not message:
        assert data_set("tiny", tmp_path / "package").config.model_fields.keys() == {"name", "held_out"}
        return
    with pytest.raises(ConfigError) as error:
        data_set("tiny", tmp_path / "package")
    [line] = error.value.lines
    assert re.sub(r"^.*tiny.yaml:\d+: ", "", line).startswith(message)


def test_a_data_set_without_reader_and_module_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "tasks/data/tiny.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(yaml.safe_dump({"description": "tiny", "facts": {"train_samples": 3, "val_samples": 3}}))
    monkeypatch.setattr(data, "data_set", lambda name: data_set(name, tmp_path))
    with pytest.raises(ValueError, match=r"tiny.yaml: reader: missing, allowed: one of memory, stream, text, "):
        data.build("tiny", {})

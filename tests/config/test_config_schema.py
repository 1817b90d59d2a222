"""The exported JSON Schemas accept the real files and refuse what the models refuse."""

import json
from pathlib import Path

import jsonschema
import pytest

from resync.base.settings.base import PACKAGE
from resync.base.settings.loader import load
from resync.base.settings.options import option_names
from resync.papers.paper import schema

REPOSITORY = Path(__file__).parents[2]
CONFIGS = REPOSITORY / "paper_configs"
FILES = {
    "paper.schema.json": [CONFIGS / "qsr" / "paper.yaml", CONFIGS / "sgp" / "paper.yaml"],
    "experiment.schema.json": sorted(CONFIGS.glob("*/experiments/*.yaml")),
    "published.schema.json": sorted(CONFIGS.glob("*/published.yaml")),
    "claims.schema.json": sorted(CONFIGS.glob("*/claims.yaml")),
    "columns.schema.json": sorted(REPOSITORY.glob("docs/*columns*.yaml")),
    "logs.schema.json": sorted(CONFIGS.glob("*/logs.yaml")),
    "scale.schema.json": sorted(CONFIGS.glob("scales/*.yaml")),
}


@pytest.fixture(scope="module")
def validators():
    return {name: jsonschema.Draft202012Validator(exported) for name, exported in schema.schemas().items()}


def test_schemas_are_schemas(validators):
    for validator in validators.values():
        validator.check_schema(validator.schema)


@pytest.mark.parametrize(
    ("name", "file"),
    [pytest.param(name, file, id=str(file.relative_to(REPOSITORY))) for name, files in FILES.items() for file in files],
)
def test_real_files_fit_their_schema(validators, name, file):
    validators[name].validate(json.loads(json.dumps(load(file).plain())))


def test_run_files_fit_their_schema(suite, validators):
    of_an_experiment = {
        (run.experiment, run.scale): run
        for paper in suite.papers
        for scale in suite.scales
        for run in suite.runs(paper, scale)
    }
    for run in of_an_experiment.values():
        validators["run.schema.json"].validate(run.model_dump(mode="json", exclude_none=True))


WRONG = {
    "unknown option": {"model": {"name": "cnn", "width": [8]}},
    "option of another component": {"model": {"name": "mlp", "widths": [8]}},
    "unknown component": {"sync": {"name": "gossip"}},
    "value": {"workers": 0},
    "period": {"sync": {"name": "local", "period": {"rule": "constant", "h": 0}}},
    "key": {"worker": 4},
}


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG)
def test_schema_refuses_what_the_models_refuse(validators, content):
    assert not validators["scale.schema.json"].is_valid(content)


def properties(part, path=()):
    """Every property of a schema that is declared, with its path."""
    if isinstance(part, list):
        for item in part:
            yield from properties(item, path)
    elif isinstance(part, dict):
        for key, value in part.items():
            if key == "properties":
                yield from (((*path, name), declared) for name, declared in value.items())
            yield from properties(value, (*path, key))


@pytest.mark.parametrize("name", [*FILES, "run.schema.json"])
def test_every_key_is_described(validators, name):
    silent = [path for path, declared in properties(validators[name].schema) if "description" not in declared]
    assert [path for path in silent if path[-1] not in ("name", "rule")] == []


def test_components_are_a_choice_by_name(validators):
    run = validators["run.schema.json"].schema
    variants = [run["$defs"][choice["$ref"].removeprefix("#/$defs/")] for choice in run["properties"]["sync"]["oneOf"]]
    names = option_names("sync", PACKAGE)
    assert {"adpsgd", "allreduce", "local"} < set(names)
    assert [variant["properties"]["name"]["const"] for variant in variants] == names
    assert all("name" in variant["required"] for variant in variants)

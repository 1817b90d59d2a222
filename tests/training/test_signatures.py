"""The library functions take their options from the declarations: for type checkers, editors and `help`."""

import inspect
import os
import re
from pathlib import Path

import pytest
from mypy import api

import resync
from resync.attach import Synchronised
from resync.formulas.periods import PowerRule
from resync.methods import METHODS
from resync.settings.options import options_of

ROOT = Path(__file__).parents[2]
SNIPPET = """\
import torch
import resync
from resync.formulas.periods import Phases

model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters())
reveal_type(resync.SGP(model, optimizer))
reveal_type(resync.OSGP)
resync.SGP(model, optimizer, topology="ring", peers=[(0, 0), (20, 1)], seed=1)
resync.LocalSGD(model, optimizer, period=4, average_state=["exp_avg"])
resync.SlowMo(model, optimizer, period=Phases(phases=[(0, 1), (9, "end")]), nesterov=True, scale_by_lr=False)
resync.SGP(model, optimizer, peer=2)
resync.SGP(model, optimizer, topology="rong")
resync.LocalSGD(model, optimizer)
resync.QSR(model, optimizer, alpha="0.1", total_steps=3, warmup_steps=0)
"""


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """What mypy says of each line of the snippet."""
    folder = tmp_path_factory.mktemp("mypy")
    (folder / "snippet.py").write_text(SNIPPET)
    os.environ["MYPYPATH"] = str(ROOT / "src")
    config = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(folder / "cache")]
    out, errors, _ = api.run([*config, str(folder / "snippet.py")])
    assert not errors
    del os.environ["MYPYPATH"]
    found = re.findall(r'snippet\.py:(\d+): \w+: (?!"\w+" defined in )(.*)', out)  # not where a function stands
    return {int(line): text for line, text in found}


def test_right_calls_pass_and_wrong_ones_are_named(checked: dict[int, str]):
    lines = {SNIPPET.splitlines()[line - 1]: text for line, text in checked.items()}
    wrong = {line.split("(", 1)[1]: text for line, text in lines.items() if not line.startswith("reveal")}
    assert list(wrong) == [
        "model, optimizer, peer=2)",
        'model, optimizer, topology="rong")',
        "model, optimizer)",
        'model, optimizer, alpha="0.1", total_steps=3, warmup_steps=0)',
    ]
    said = list(wrong.values())
    assert 'Unexpected keyword argument "peer"' in said[0]
    assert "Literal['rong']" in said[1]
    assert 'Missing named argument "period"' in said[2]
    assert 'Argument "alpha" to "QSR" has incompatible type "str"; expected "float"' in said[3]


def test_an_editor_sees_every_option_and_what_comes_back(checked: dict[int, str]):
    result, function = (text for line, text in checked.items() if SNIPPET.splitlines()[line - 1].startswith("reveal"))
    assert '"resync.attach.Synchronised"' in result
    options = [*options_of("sync", "osgp").model_fields][1:]
    assert all(f" {option}: " in function for option in [*options, "seed"])
    assert " name: " not in function


@pytest.mark.parametrize(
    ("function", "name"),
    [
        ("LocalSGD", "local"), ("SGP", "sgp"), ("OSGP", "osgp"), ("DPSGD", "dpsgd"), ("SlowMo", "slowmo"),
        ("DiLoCo", "diloco"), ("DiLoCoProgress", "diloco_progress"), ("SNOO", "snoo"), ("GPA", "gpa"),
        ("PALSGD", "palsgd"), ("StreamingDiLoCo", "streaming_diloco"), ("DESLOC", "desloc"), ("NoLoCo", "noloco"),
    ],
)  # fmt: skip
def test_a_function_has_every_option_of_its_algorithm(function: str, name: str):
    method, declared = getattr(resync, function), options_of("sync", name).model_fields
    parameters = inspect.signature(method).parameters
    for option, field in declared.items():
        if option == "name":
            continue
        default = inspect.Parameter.empty if field.is_required() else field.default
        assert parameters[option].default == default
        assert f" {option}: {field.description}" in " ".join(method.__doc__.split())


def test_every_function_says_what_it_takes():
    assert {*METHODS, "Synchronised"} == {name for name in resync.__all__ if name[0].isupper()}
    for name, method in METHODS.items():
        model, optimizer, *options = inspect.signature(method).parameters.values()
        assert (method.__name__, model.name, optimizer.name) == (name, "model", "optimizer")
        assert all(f"    {option.name}: " in method.__doc__ for option in options)
        assert all(option.kind is inspect.Parameter.KEYWORD_ONLY for option in options)
        assert inspect.signature(method).return_annotation is Synchronised


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda *loop: resync.SGP(*loop, peer=2), "^SGP: peer: unknown key, allowed: .*; did you mean 'peers'"),
        (
            lambda *loop: resync.LocalSGD(*loop, period=0),
            "^LocalSGD: period: found 0, allowed: integer >= 1 or a rule$",
        ),
        (
            lambda *loop: resync.QSR(*loop, alpha=-1, total_steps=9, warmup_steps=0),
            "^QSR: alpha: found -1, allowed: number > 0$",
        ),
        (
            lambda *loop: resync.QSR(*loop, alpha=1.0, total_steps=9),
            "^QSR: warmup_steps: missing, allowed: integer >= 0$",
        ),
        (
            lambda *loop: resync.LocalSGD(*loop, period=PowerRule(alpha=1.0), total_steps=9),
            "^LocalSGD: warmup_steps: missing, allowed: integer >= 0, because the period follows the learning rate$",
        ),
        (
            lambda *loop: resync.SlowMo(*loop, period=2, base="local"),
            "^SlowMo: base: found 'local', allowed: none, all",
        ),
    ],
)
def test_a_wrong_call_is_one_line(call, message: str):
    with pytest.raises(ValueError, match=message):
        call(None, None)

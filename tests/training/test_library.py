"""The library's names: the options of the algorithms are its API, for type checkers, `help`, `repr` and wrong calls."""

import re
import subprocess
import sys
import warnings
from inspect import getdoc, signature
from pathlib import Path

import pytest
import torch
from mypy import api

import resync
from resync.workers.sync import options
from resync.workers.sync.options.base import SyncOptions

ROOT = Path(__file__).parents[2]
SNIPPET = """\
import torch
import resync
Phases = resync.periods.Phases

model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters())
sync = resync.attach(model, optimizer, resync.SGP(topology="ring", peers=[(0, 0), (20, 1)]), seed=1)
reveal_type(sync)
reveal_type(resync.QSR(alpha=0.1, h_base=2))
resync.LocalSGD(period=4, average_state=["exp_avg"])
resync.SlowMo(period=Phases(phases=[(0, 1), (9, "end")]), average=True, base=resync.SGP())
resync.topology.cycle("ring", 4)
resync.SGP(peer=2)  # wrong
resync.SGP(topology="rong")  # wrong
resync.LocalSGD()  # wrong
resync.QSR(alpha="0.1")  # wrong
resync.SGP(model, optimizer)  # wrong
resync.attach(model, optimizer)  # wrong
resync.attach(model, optimizer, resync.SGP(), peers=2)  # wrong
resync.SGPP()  # wrong
"""
_SGD = torch.optim.SGD([torch.zeros(1)])
ALGORITHMS = [
    resync.AllReduce(average="parameters"),
    resync.SGP(peers=[(0, 0), (20, 1)], average_state=["exp_avg"]),
    resync.SlowMo(period=resync.periods.Phases(phases=[(0, 1), (9, "end")]), base="osgp"),
    resync.QSR(alpha=0.1, h_warmup=2),
    resync.Lookahead(period=5),
    resync.GPA(h=3),
]


def test_a_type_checker_knows_every_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "snippet.py").write_text(SNIPPET)
    monkeypatch.setenv("MYPYPATH", str(ROOT / "src"))
    # With the cache of `make test`'s own check, which has just read the package.
    config = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    out, errors, _ = api.run([*config, str(tmp_path / "snippet.py")])
    assert not errors
    found = re.findall(r'snippet\.py:(\d+): (\w+): (?!"\w+" defined in )(.*)', out)  # not where a function stands
    wrong = {int(line) for line, kind, _ in found if kind == "error"}
    assert wrong == {number for number, line in enumerate(SNIPPET.splitlines(), 1) if line.endswith("# wrong")}, out
    said = " ".join(text for _, kind, text in found if kind == "note")
    assert "resync.library.Synchronised" in said
    assert "resync.workers.sync.options.rounds.LocalSGD" in said


def test_the_library_has_every_algorithm_of_the_families_and_each_has_its_configuration():
    """An algorithm in a module of its own is `resync.NAME` if sync/options/__init__.py names it too."""
    named = {getattr(resync, name) for name in options.__all__ if name not in ("QSR", "Lookahead")}
    declared = {SyncOptions.named(name) for name in SyncOptions.names()}
    assert named == {each for each in declared if each.__module__ in {other.__module__ for other in named}}


def test_names_are_imported_on_first_use_and_torch_by_attach_only():
    code = """import sys, resync
assert "pydantic" not in sys.modules
algorithm = resync.SGP(peers=2)
assert "torch" not in sys.modules
assert resync.attach.__module__ == "resync.library"
assert "torch" in sys.modules
from resync import topology
assert topology is resync.topology"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert {"attach", "SGP", "QSR", "topology", "__version__"} <= set(dir(resync))
    with pytest.raises(AttributeError, match="module 'resync' has no attribute 'SGPP'"):
        _ = resync.SGPP


def test_what_was_attached_by_its_name_says_that_name():
    assert repr(resync.QSR(alpha=0.0175, h_base=4)) == "QSR(alpha=0.0175, h_base=4)"
    assert repr(resync.LocalSGD(period=4)).startswith("LocalSGD(")


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=repr)
def test_an_algorithm_is_the_same_in_python_repr_and_configuration(algorithm: SyncOptions):
    names = {name: getattr(resync, name) for name in options.__all__} | vars(resync.periods)
    assert eval(repr(algorithm), names) == algorithm
    declared = algorithm.model_dump(mode="json")
    assert SyncOptions.named(declared["name"]).model_validate(declared) == algorithm


@pytest.mark.parametrize("name", options.__all__)
def test_help_says_what_an_algorithm_does_sends_and_takes_with_an_example_that_works(name: str):
    algorithm = getattr(resync, name)
    text = getdoc(algorithm)
    assert "Sends " in text
    assert re.search(r"\(?20\d\d\)|20\d\d, |not a published method", text)
    given = algorithm.model_fields.keys() - {"name"} if isinstance(algorithm, type) else signature(algorithm).parameters
    assert all(f"    {option}: " in text for option in given)
    [example] = re.findall(r"^ +(sync = .*?\))$", text, re.MULTILINE)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.Adam(model.parameters())
    scope = {"resync": resync, "model": model, "optimizer": optimizer, "T": 9, "W": 0}
    exec(example, scope)
    assert f"resync.{name}(" in example
    assert scope["sync"].steps == 0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: resync.SGP(peer=2), ValueError, "^SGP: peer: unknown key, allowed: .*; did you mean 'peers'"),
        (lambda: resync.SGP(None, None), TypeError, r"resync\.attach\(model, optimizer, SGP\(\.\.\.\)"),
        (lambda: resync.LocalSGD(period=0), ValueError, "^LocalSGD: period: found 0, allowed: integer >= 1 or a rule$"),
        (lambda: resync.QSR(alpha=-1), ValueError, "^PowerRule: alpha: found -1, allowed: number > 0$"),
        (lambda: resync.SlowMo(period=2, base="local"), ValueError, "^SlowMo: base: found 'local', allowed: none, all"),
        (lambda: resync.attach(None, None, resync.SGP), TypeError, "^algorithm: found <class .*SGP'>, allowed: "),
        (
            lambda: resync.attach(_SGD, torch.nn.Linear(1, 1), resync.SGP()),
            TypeError,
            r"^model: found SGD, allowed: a torch Module, as in resync\.attach\(model, optimizer, algorithm\)$",
        ),
        (
            lambda: resync.attach(torch.nn.Linear(1, 1), "sgd", resync.SGP()),
            TypeError,
            "^optimizer: found str, allowed",
        ),
        (lambda: resync.attach(None, None, resync.QSR(alpha=1.0)), ValueError, "^total_steps: missing, allowed: .*1"),
    ],
)
def test_a_wrong_call_is_one_line(call, error, message: str):
    with pytest.raises(error, match=message):
        call()


def test_an_attached_algorithm_says_where_it_stands():
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = resync.attach(model, optimizer, resync.LocalSGD(period=4), total_steps=10)
    pattern = r"step (\d+) of 10, round (\d+) of H = (\d+), next average in step (\d+), 0 bytes sent"
    seen = []
    for _ in range(9):
        seen.append(re.search(pattern, str(sync)))
        optimizer.step()
    assert str(sync).startswith("LocalSGD(period=Constant(h=4)), worker 0 of 1: step 9 of 10, ")
    assert [tuple(map(int, found.groups())) for found in seen] == [
        (step, step // 4 + 1, 4 if step < 8 else 2, min(step // 4 * 4 + 4, 10)) for step in range(9)
    ]


@pytest.mark.parametrize(
    ("options", "rate"),
    [
        (resync.DiLoCo(period=1), 7),  # 0.7 / (1 - 0.9)
        (resync.DiLoCo(period=1, momentum=0.6, nesterov=False), 1.75),
        (resync.SNOO(period=1), 0.68 / 0.63),
        (resync.SlowMo(period=1, alpha=0.5, beta=0.75), 2),
        (resync.StreamingDiLoCo(period=1, fragments=1, lr=0.5, momentum=0.5), 1),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_the_effective_outer_rate_is_how_far_a_constant_change_moves(options, rate: float):
    model = torch.nn.Linear(1, 1, bias=False, dtype=torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    sync = resync.attach(model, optimizer, options)
    for _ in range(400):
        before = model.weight.item()
        model.weight.grad = torch.ones_like(model.weight)
        optimizer.step()
    assert before - model.weight.item() == pytest.approx(rate) == options.effective_outer_lr
    assert f"effective outer rate {rate:.3g}" in str(sync)
    assert resync.LocalSGD(period=1).effective_outer_lr is None


def test_the_signature_of_an_algorithm_names_its_options():
    assert str(signature(resync.DiLoCo)).startswith("(*, period, lr=0.7, momentum=0.9")


def test_a_step_beyond_the_declared_ones_warns_once():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = resync.attach(model, optimizer, resync.LocalSGD(period=2), total_steps=2)

    def step():
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()

    step()
    step()
    with pytest.warns(RuntimeWarning, match="step 3 is beyond total_steps = 2"):
        step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step()
    sync.finish()

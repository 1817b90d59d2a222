"""Options of components: declared once, read without torch, with one line for a wrong value in Python."""

from typing import get_args

import pytest
import yaml

from resync.base.settings.base import PACKAGE
from resync.base.settings.options import option_names, options_of
from resync.runs.run import Run
from resync.workers.formulas.periods import Constant, Period, Phases, PowerRule
from resync.workers.formulas.topology import TOPOLOGIES, TopologyName
from resync.workers.sync.options.gossip import SGP
from resync.workers.sync.options.outer import PALSGD, SlowMo
from resync.workers.sync.options.rounds import LocalSGD

RUN = {
    "paper": "p", "experiment": "e", "series": "s", "scale": "smoke", "seed": 0, "data": {"name": "digits"},
    "model": {"name": "mlp"}, "workers": 4, "batch_size": 64, "epochs": 2, "optimizer": {"name": "sgd"},
    "schedule": {"name": "constant", "lr": 0.1},
}  # fmt: skip
ROOMS = ("models", "optim", "render", "sync")


@pytest.mark.parametrize(("room", "name"), [(room, name) for room in ROOMS for name in option_names(room)])
def test_every_component_has_a_module_and_every_option_a_description(room, name):
    options = options_of(room, name)
    assert list(PACKAGE.glob(f"*/{room}/{name}.py"))
    assert options.description()
    assert all(field.description for key, field in options.model_fields.items() if key != "name")


def test_topologies_are_those_with_a_name():
    assert get_args(TopologyName) == tuple(TOPOLOGIES)


def test_epochs_become_whole_steps_in_every_part():
    phases = Phases(phases=[(0, 1), (2.5, 4), (3, "end")])
    assert LocalSGD(period=phases).in_steps(10).rule == Phases(phases=[(0, 1), (25, 4), (30, "end")])
    slow = SlowMo(period=phases, base=SGP(peers=[(0, 0), (0.25, 2)])).in_steps(10)
    assert slow.rule == Phases(phases=[(0, 1), (25, 4), (30, "end")])
    assert slow.inner.phases == ((0, 0), (2, 2))


def test_options_of_attach_count_whole_steps():
    assert SGP(peers=[(0, 0), (200, 1)]).in_steps().phases == ((0, 0), (200, 1))
    assert PALSGD(period=4, start=30).in_steps().rule == Phases(phases=[(0, 1), (30, 4)])


def test_a_period_may_be_an_integer_or_a_rule_of_ones_own():
    class Cap(Period):
        rule: str = "cap"

        def local_steps(self, lr: float, step: int, warming_up: bool) -> float:
            return min(3, PowerRule(alpha=1).local_steps(lr, step, warming_up))

    assert LocalSGD(period=4).rule == Constant(h=4)
    assert LocalSGD(period=Cap()).rule.local_steps(0.1, 0, False) == 3


def test_the_name_of_a_base_stands_for_its_defaults():
    assert SlowMo(period=2, base="sgp") == SlowMo(period=2, base=SGP())
    assert SlowMo(period=2).inner is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGP(peer=2), "SGP: peer: unknown key, allowed: topology, peers, average_state"),
        (lambda: SGP(peers=0), r"SGP: peers: found 0, allowed: integer >= 1, or a list of \[first epoch, peers >= 0\]"),
        (lambda: SGP(peers=[(1, 2)]), r"peers\[0\]\[0\]: found 1, allowed: 0"),
        (lambda: SlowMo(period=2, base="sgd"), "base: found 'sgd', allowed: none, allreduce, osgp, sgp; did you mean"),
        (lambda: SlowMo(period=2, base=LocalSGD(period=3)), "base.name: found 'local'"),
        (lambda: SlowMo(period=2, base={"name": "sgp", "peer": 2}), "base.peer: unknown key"),
        (lambda: LocalSGD(period=0), "^LocalSGD: period: found 0, allowed: integer >= 1 or a rule$"),
        (lambda: SlowMo(period=2, average=False), "average: found false without a base algorithm, allowed: true"),
        (lambda: LocalSGD(period="often"), "LocalSGD: period: found 'often', allowed: a mapping with the key 'rule'"),
        (lambda: SGP(peers=[(0, 0), (2.6, 1)]).in_steps(), r"SGP: peers\[1\]\[0\]: found 2.6, allowed: a whole number"),
        (lambda: PALSGD(period=4, start=3.7).in_steps(), "PALSGD: start: found 3.7, allowed: a whole number of steps"),
        (lambda: SGP(peers=[(0, 0), (2, 1)]).in_steps(10).in_steps(10), r"peers\[0\]\[0\]: found 0, allowed: epochs"),
        (lambda: SlowMo(period=2, base=SGP(peers=[(0, 0), (0.25, 2)])).in_steps(), r"SlowMo: base.peers\[1\]\[0\]: "),
    ],
)
def test_a_wrong_value_in_python_is_one_line(make, message):
    with pytest.raises(ValueError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_a_run_names_all_options_of_its_base(tmp_path):
    sync = {"name": "slowmo", "period": {"rule": "constant", "h": 3}}
    texts = {}
    for title, base in (
        ("name", "sgp"),
        ("options", {"name": "sgp", "peers": 1}),
        ("other", {"name": "sgp", "peers": 2}),
    ):
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(RUN | {"sync": sync | {"base": base}}))
        run = Run.from_file(tmp_path / "config.yaml")
        (tmp_path / "run.yaml").write_text(run.to_yaml())
        assert Run.from_file(tmp_path / "run.yaml") == run
        texts[title] = run.to_yaml()
    assert texts["name"] == texts["options"] != texts["other"]
    base = ["base:", "  name: sgp", "  topology: exponential", "  peers: 1", "  average_state: []"]
    assert "\n".join(f"  {line}" for line in base) in texts["name"]

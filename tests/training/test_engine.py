"""Which engine a run gets, and what an engine takes from another one."""

from pathlib import Path

import pytest
from processes import run_processes
from runs import VARIANTS, make_session

from resync.engine.choose import chosen


@pytest.mark.parametrize(
    ("name", "averages", "workers", "world_size", "expected"),
    [
        ("auto", True, 4, 4, "ddp"),
        ("auto", True, 4, 2, "serial"),
        ("auto", True, 1, 1, "serial"),
        ("auto", False, 4, 4, "serial"),
        ("serial", True, 4, 4, "serial"),
        ("deepspeed", True, 4, 4, "deepspeed"),
    ],
)
def test_the_engine_follows_from_the_settings(name, averages, workers, world_size, expected):
    assert chosen(name, averages, workers, world_size) == expected


def _engines(rank: int, world_size: int, folder: Path) -> dict[str, str]:
    variants = ("allreduce", "slowmo_allreduce", "slowmo_sgp", "local")
    return {
        name: make_session(folder / name, rank, world_size, **VARIANTS[name] | {"workers": 2}).engine.name
        for name in variants
    }


def test_gradients_are_averaged_during_the_backward_pass_also_inside_slow_momentum(tmp_path: Path):
    for engines in run_processes(2, _engines, tmp_path):
        assert engines == {"allreduce": "ddp", "slowmo_allreduce": "ddp", "slowmo_sgp": "serial", "local": "serial"}


def test_an_engine_refuses_a_state_that_it_cannot_read(tmp_path: Path):
    engine = make_session(tmp_path).engine
    state = engine.state_dict() | {"format": "DeepSpeed with ZeRO stage 1"}
    message = "^engine serial: found a state of DeepSpeed with ZeRO stage 1, allowed: .*; continue with the engine that"
    with pytest.raises(ValueError, match=message):
        engine.load_state_dict(state)

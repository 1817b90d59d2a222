"""Which engine a run gets, and what an engine takes from another one."""

import sys
from pathlib import Path
from types import CodeType

import pytest
from processes import run_processes
from runs import VARIANTS, every, make_session, sync

import resync
from resync.runs.train.loop import batches, train_step
from resync.workers.engine.choose import choose_engine


@pytest.mark.parametrize(
    ("name", "averages", "workers", "world_size", "expected"),
    [
        ("stacked", True, 4, 4, "stacked"),
        ("auto", True, 4, 4, "ddp"),
        ("auto", True, 4, 2, "serial"),
        ("auto", True, 1, 1, "serial"),
        ("auto", False, 4, 4, "serial"),
        ("serial", True, 4, 4, "serial"),
        ("deepspeed", True, 4, 4, "deepspeed"),
    ],
)
def test_the_engine_follows_from_the_settings(name, averages, workers, world_size, expected):
    assert choose_engine(name, averages, workers, world_size) == expected


@pytest.mark.parametrize(
    ("averages", "world_size", "expected"),
    [(True, 1, "stacked"), (True, 2, "stacked"), (True, 4, "ddp"), (False, 4, "serial"), (False, 8, "ddp")],
)
def test_workers_of_a_process_are_stacked_where_that_pays(averages: bool, world_size: int, expected: str):
    assert choose_engine("auto", averages, 4, world_size, stacking_pays=True) == expected


OVERLAPS = {
    "allreduce": True, "slowmo_allreduce": True, "slowmo_sgp": False, "local": False, "on request": False,
    "allreduce_ring": False, "allreduce_parameters_adamw": False,
}  # fmt: skip


def _overlaps(rank: int, world_size: int, folder: Path) -> dict[str, tuple[bool, bool]]:
    """Whether DDP averages, and whether this hides the time of communication, after a step."""
    found = {}
    for name in OVERLAPS:
        changes = VARIANTS.get(name, {"engine": {"name": "serial"}}) | {"workers": 2}
        session = make_session(folder / name, rank, world_size, **changes)
        train_step(session, *next(batches(session)))
        known = session.transport.communication_is_known
        assert (session.clocks.seconds("communication") > 0) == (session.transport.wire_bytes > 0 and known)
        found[name] = (session.engine.name == "ddp", not known)
    return found


def test_gradients_are_averaged_during_the_backward_pass_unless_asked_not_to(tmp_path: Path):
    """The flat average of the serial engine, of the parameters, or by messages is measured as communication."""
    for found in run_processes(2, _overlaps, tmp_path):
        assert found == {name: (overlaps, overlaps) for name, overlaps in OVERLAPS.items()}


def test_an_engine_refuses_a_state_that_it_cannot_read(tmp_path: Path):
    engine = make_session(tmp_path, engine={"name": "serial"}).engine
    state = engine.state_dict() | {"format": "DeepSpeed with ZeRO stage 1"}
    message = "^engine serial: found a state of DeepSpeed with ZeRO stage 1, allowed: .*; continue with the engine that"
    with pytest.raises(ValueError, match=message):
        engine.load_state_dict(state)


def test_whoever_reads_a_step_of_local_sgd_reads_few_functions(tmp_path: Path):
    """With several passes and fp16, which are the longest way; 35 with a ResNet, torch's fused SGD and such."""
    session = make_session(tmp_path, micro_batch_size=8, precision="fp16", **sync("local", period=every(3)))
    given = batches(session)
    train_step(session, *next(given))
    inputs, targets = next(given)
    entered: set[CodeType] = set()
    sys.setprofile(lambda frame, event, _: entered.add(frame.f_code) if event == "call" else None)
    try:
        train_step(session, inputs, targets)
    finally:
        sys.setprofile(None)
    package = str(Path(resync.__file__).parent)
    ours = {
        (code.co_filename, code.co_qualname.split(".<locals>")[0])
        for code in entered
        if code.co_filename.startswith(package)
    }
    assert len({file for file, _ in ours}) <= 11
    assert len(ours) <= 30, sorted(ours)

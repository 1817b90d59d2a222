"""`sync.advise()`: the times that it reads from the last steps, and how well it foretells those of other methods."""

import re
from typing import Any

import pytest
import torch
import torch.distributed as dist
from processes import run_processes
from torch import nn

import resync
from resync.base.errors import UserError
from resync.workers.engine import clocks, transport
from resync.workers.formulas.advice import Advice
from resync.workers.sync.options.base import SyncOptions

COMPUTING, AVERAGE, MESSAGE = (4.0, 3.0), 5.0, 2.0
"""Seconds of a step on each rank; of an average and of a message of all parameters, once both ranks have come."""
OF_AVERAGES, OF_MESSAGES = Advice(2, 4.0, AVERAGE, AVERAGE, "message"), Advice(2, 4.0, MESSAGE, MESSAGE, "average")
ADVICE: dict[str, tuple[SyncOptions, Advice]] = {
    "averages in rounds": (resync.LocalSGD(period=2), OF_AVERAGES),
    "averages of gradients": (resync.AllReduce(), OF_AVERAGES),
    "averages of parts": (resync.StreamingDiLoCo(period=4, fragments=2, delay=0), OF_AVERAGES),
    "messages": (resync.SGP(), OF_MESSAGES),
    "both in turn": (resync.SGP(peers=[(0, 0), (5, 1)]), Advice(2, 4.0, AVERAGE, MESSAGE)),
    "both in a step": (resync.SlowMo(period=2, base="sgp"), OF_MESSAGES),
}
REFUSED: dict[str, tuple[SyncOptions, str]] = {
    "late messages": (resync.OSGP(), "found OSGP.*, whose messages travel while workers compute or are rounded"),
    "a late average": (resync.StreamingDiLoCo(period=4, fragments=2, delay=1), "whose messages travel while"),
    "rounded": (resync.DiLoCo(period=2, compression="int8"), "found DiLoCo.*, whose messages travel while .*rounded"),
    "nothing yet": (
        resync.LocalSGD(period=20),
        "found no average or message alone in the last 8 steps, without the first one",
    ),
}


@pytest.fixture(scope="module")
def advised() -> list[dict[str, Any]]:
    return run_processes(2, _advise)


@pytest.mark.parametrize("name", ADVICE)
def test_all_are_told_of_the_slowest_ones_steps_and_of_exchanges_without_waiting_for_others(advised, name: str):
    for rank in advised:
        assert rank[name].modelled == ADVICE[name][1].modelled
        numbers = ([each.computing, each.average, each.message] for each in (rank[name], ADVICE[name][1]))
        assert next(numbers) == pytest.approx(next(numbers))


@pytest.mark.parametrize("name", REFUSED)
def test_a_time_that_no_clock_has_measured_is_not_guessed(advised, name: str):
    for rank in advised:
        assert re.match(rf"advise\(\): .*{REFUSED[name][1]}.*, allowed: ", rank[name])


def test_one_worker_is_told_that_it_exchanges_nothing():
    model = nn.Linear(1, 1)
    sync = resync.attach(model, torch.optim.SGD(model.parameters()), resync.LocalSGD(period=2))
    with pytest.raises(UserError, match=r"^advise\(\): found one worker, which exchanges nothing, allowed: several$"):
        sync.advise()


def _advise(rank: int, size: int) -> dict[str, Any]:
    """With a clock that only computing and exchanges move: the faster rank waits in an exchange."""
    now, ahead = 0.0, 0.0

    def exchange(seconds: float, elements: int) -> None:
        nonlocal now, ahead
        now, ahead = now + ahead + seconds * elements / parameters, 0.0

    def all_reduce(tensor: torch.Tensor, *given: Any, **options: Any) -> Any:
        exchange(AVERAGE, tensor.numel())
        return averages(tensor, *given, **options)

    def start(operations: list[dist.P2POp]) -> list[dist.Work]:
        exchange(MESSAGE, sum(each.tensor.numel() for each in operations if each.op is dist.isend))
        return messages(operations)

    averages, messages = dist.all_reduce, transport.start
    clocks.perf_counter, dist.all_reduce, transport.start = lambda: now, all_reduce, start
    found: dict[str, Any] = {}
    for name, (method, _) in (ADVICE | REFUSED).items():
        model = nn.Linear(3, 4)
        parameters = sum(each.numel() for each in model.parameters())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        sync = resync.attach(model, optimizer, method)
        for _ in range(9):
            model(torch.ones(1, 3)).sum().backward()
            now, ahead = now + COMPUTING[rank], ahead + max(COMPUTING) - COMPUTING[rank]
            optimizer.step()
        try:
            found[name] = sync.advise()
        except UserError as error:
            found[name] = str(error)
        sync.detach()
    return found


class _Event:
    """Of a device whose time is that of the test, and which is some events late."""

    now, done = 0.0, 0.0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at = _Event.now

    def query(self) -> bool:
        return self.at <= _Event.done

    def synchronize(self) -> None:
        _Event.done = max(_Event.done, self.at)

    def elapsed_time(self, end: "_Event") -> float:
        return 1000 * (end.at - self.at)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_laps_have_the_communication_in_them_and_a_device_that_is_late_is_not_waited_for(monkeypatch, device: str):
    monkeypatch.setattr(torch.cuda, "Event", _Event)
    monkeypatch.setattr(clocks, "perf_counter", lambda: _Event.now)
    _Event.now = _Event.done = 0.0
    found = clocks.Clocks(torch.device(device))
    for step in range(2 * clocks.MARKS):
        _Event.now += 1.0
        if step % 2:
            with found.measure("communication"):
                _Event.now += 0.5
        found.mark(10 * step)
        assert _Event.done == 0.0 or device == "cpu" or step > 20
        _Event.done = _Event.now - 20 if step > 20 else 0.0
        assert len(found._pending) < 100
    laps = found.laps()
    assert len(laps) == clocks.MARKS - 1
    assert set(laps) == {(1.0, 0.0, (10,)), (1.5, 0.5, (10,))}

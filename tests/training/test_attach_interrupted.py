"""A step that an error or Ctrl-C interrupts: repeated, it gives what it would have given, or every call refuses."""

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from processes import run_processes
from quadratic import Point, Problem
from runs import BASE, VARIANTS

import resync
from resync.workers.sync.options.base import SyncOptions

CENTRES = torch.tensor([[-1.5, 2.0], [-0.5, -2.0], [0.5, 2.0], [1.5, -2.0]], dtype=torch.float64)
START, STEPS, INTERRUPTED = [1.0, -1.0], 8, 3


def _algorithm(declared: dict[str, Any]) -> SyncOptions:
    options = dict(declared["sync"])
    return SyncOptions.named(options.pop("name")).model_validate(options)


DECLARED = {str((BASE | each)["sync"]): BASE | each for each in VARIANTS.values()}
METHODS = {name: each for name, each in DECLARED.items() if not _algorithm(each).needs.virtual_clock}
"""Every algorithm that can be attached, each once with the same options."""


class Failing:
    """An optimizer whose next step raises if it is told so."""

    fails = False

    def step(self, closure: Any = None) -> Any:
        """A step, or none."""
        if self.fails:
            self.fails = False
            raise MemoryError
        return super().step(closure)  # type: ignore[misc]


class SGD(Failing, torch.optim.SGD):
    """SGD that may fail."""


class AdamW(Failing, torch.optim.AdamW):
    """AdamW that may fail."""


class Loop:
    """A worker of a quadratic problem, with an algorithm attached."""

    def __init__(self, rank: int, declared: dict[str, Any]) -> None:
        algorithm = _algorithm(declared).in_steps(7)
        # Only rank 0 has the right start: it is everybody's.
        self.centre, self.model = CENTRES[rank], Point(START if rank == 0 else [9.0, 9.0])
        sgd = declared["optimizer"]["name"] == "sgd"
        parameters = self.model.parameters()
        self.optimizer = SGD(parameters, lr=0.1, momentum=0.9) if sgd else AdamW(parameters, lr=0.1)
        self.sync = resync.attach(self.model, self.optimizer, algorithm, total_steps=STEPS, warmup_steps=0)
        self.parts = (self.model, self.optimizer, self.sync)

    def step(self) -> None:
        """A step on this worker's own loss."""
        self.optimizer.zero_grad()
        self.model(self.centre).backward()
        self.optimizer.step()

    def interrupted(self, of_optimizer: bool) -> None:
        """A step that ends before the optimizer has done anything, or when the algorithm has exchanged all."""
        algorithm, after_step = self.sync.algorithm, self.sync.algorithm.after_step

        def failing(lr: float) -> bool:
            algorithm.after_step = after_step
            after_step(lr)
            raise MemoryError

        if of_optimizer:
            self.optimizer.fails = True
        else:
            algorithm.after_step = failing
        with pytest.raises(MemoryError):
            self.step()

    def load(self, saved: list[Any]) -> None:
        """Continue from the states of the parts."""
        for part, state in zip(self.parts, saved, strict=True):
            part.load_state_dict(deepcopy(state))

    def to_the_end(self) -> tuple[np.ndarray, list[int]]:
        """What is left of the steps; this worker's own parameters after them, the average, and the end; its counts."""
        while self.sync.steps < STEPS:
            self.step()
        own, counts = self.model.theta.detach().numpy().copy(), [self.sync.rounds, self.sync.bytes_sent]
        with self.sync.consensus():
            average = self.model.theta.detach().numpy().copy()
        self.sync.finish()
        return np.stack([own, average, self.model.theta.detach().numpy()]), counts


def _of_all(rank: int, world_size: int) -> dict[str, Any]:
    return {name: _of_one(rank, declared) for name, declared in METHODS.items()}


def _of_one(rank: int, declared: dict[str, Any]) -> dict[Any, Any]:
    """The ends of an undisturbed loop, of one that another resumes, and of interrupted ones with what calls say."""
    found: dict[Any, Any] = {"undisturbed": Loop(rank, declared).to_the_end()}
    for of_optimizer in (True, False):
        loop = Loop(rank, declared)
        while loop.sync.steps < INTERRUPTED:
            loop.step()
        saved = [deepcopy(part.state_dict()) for part in loop.parts]
        loop.interrupted(of_optimizer)
        said = _said(loop.step)
        if said:
            said += [text for call in ("consensus", "state_dict", "finish") for text in _said(_call(loop.sync, call))]
            loop.load(saved)
        found[of_optimizer] = said, loop.to_the_end()[0]
    again = Loop(rank, declared)
    again.load(saved)
    return found | {"resumed": again.to_the_end()}


def _call(sync: resync.Synchronised, name: str) -> Any:
    return sync.consensus().__enter__ if name == "consensus" else getattr(sync, name)


def _said(call: Any) -> list[str]:
    try:
        call()
    except RuntimeError as error:
        return [str(error)]
    return []


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, Any]]:
    """What four processes found for every algorithm."""
    return run_processes(4, _of_all)


@pytest.mark.parametrize("name", METHODS)
def test_an_interrupted_step_is_repeated_exactly_or_refused_until_a_state_is_loaded(ranks, name):
    for rank, found in enumerate(each[name] for each in ranks):
        for of_optimizer in (True, False):
            said, end = found[of_optimizer]
            assert np.array_equal(end, found["undisturbed"][0])
            assert len(said) == 4 or (of_optimizer and not said)
            for text, call in zip(said, ("step", "consensus()", "state_dict()", "finish()"), strict=False):
                assert text.startswith(f"rank {rank}, {call}")
                assert f"step {INTERRUPTED + 1} was interrupted by an error or Ctrl-C" in text


@pytest.mark.parametrize("name", METHODS)
def test_states_that_new_objects_load_continue_exactly(ranks, name):
    for found in (each[name] for each in ranks):
        (ends, counts), (expected, of_whole) = found["resumed"], found["undisturbed"]
        assert np.array_equal(ends, expected)
        assert counts == of_whole


@pytest.mark.parametrize("name", METHODS)
def test_an_attached_algorithm_ends_like_its_simulated_workers(ranks, name):
    algorithm, sgd = dict(_algorithm(METHODS[name]).in_steps(7)), METHODS[name]["optimizer"]["name"] == "sgd"
    kind, settings = (torch.optim.SGD, {"momentum": 0.9}) if sgd else (torch.optim.AdamW, {})
    name_of, given = algorithm.pop("name"), {"settings": settings, "training": {"total_steps": STEPS}}
    simulated = Problem(name_of, CENTRES.tolist(), START, optimizer=kind, **given, **algorithm)
    for _ in range(STEPS):
        simulated.step()
    simulated.sync.send_ahead()
    for own, found in zip(simulated.rows, ranks, strict=True):
        ends, [rounds, _] = found[name]["undisturbed"]
        np.testing.assert_allclose(ends, [own, *2 * [simulated.consensus()]], rtol=0, atol=1e-12)
        assert rounds == simulated.sync.rounds


def test_detaching_after_an_interruption_warns_and_frees_the_model():
    loop = Loop(0, BASE | {"sync": {"name": "gpa"}})
    loop.interrupted(of_optimizer=True)
    with pytest.warns(RuntimeWarning, match=r"^rank 0, detach\(\): step 1 was interrupted"):
        loop.sync.detach()
    Loop.step(loop)
    resync.attach(loop.model, loop.optimizer, resync.GPA()).finish()

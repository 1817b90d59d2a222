"""Asynchronous Local SGD: times and bits of the authors' toy, and independent recursions."""

import csv
import heapq
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from launched import code_of, forked
from quadratic import Problem

from resync.runs.exchanges import virtual_time
from resync.runs.exchanges.virtual_time import stretches, virtual_seconds
from resync.runs.run import Run
from resync.runs.train.build import build
from resync.runs.train.loop import batches, train_step
from resync.tasks.data.gaussian_clusters import draw, notebook_orders
from resync.workers.formulas.clock import VirtualClock
from resync.workers.sync.algorithm import Algorithm
from resync.workers.sync.options.asynchronous import AsyncLocalSGD

CENTRES = np.array([[-1.5, 2.0], [-0.5, -2.0], [0.5, 2.0], [1.5, -2.0]])
START = np.array([1.0, -1.0])
SECONDS = [1.0, 1.3, 2.1, 3.7]


@pytest.fixture(scope="module")
def toy(real_data: Path) -> Path:
    return real_data / "async-local-sgd-toy"


@pytest.fixture(scope="module")
def golden(toy: Path) -> Any:
    return json.loads((toy / "golden.json").read_text())


def toy_run(papers: Any, series: str) -> Run:
    [run] = [run for run in papers.runs("async_local_sgd", "paper") if run.id == f"async_local_sgd/toy/{series}/seed42"]
    return run


def test_the_clock_has_all_times_of_the_authors_log(papers, toy: Path):
    with (toy / "log.csv").open() as file:
        lines = list(csv.DictReader(file))
    for series in dict.fromkeys(line["run"] for line in lines):
        run, times, steps = toy_run(papers, series), {0: 0.0}, 0
        for event in virtual_time.timetable(run).events():
            if event.kind == "end":
                steps += sum(phase.steps for phase in event.phases)
                times[steps] = event.time
            if steps == 4 * run.total_steps:
                break
        found = [line for line in lines if line["run"] == series]
        assert virtual_seconds(run) == times[max(times)]
        assert [f"{times[int(line['step'])]:.2f}" for line in found] == [line["simulated_time"] for line in found]


def test_the_clock_has_the_order_and_streams_of_the_notebook(papers, golden):
    """The starts and ends of the asynchronous run until its step 800, and the streams of a sanity run."""
    recorded = golden["virtual_clock_wait_0.5"]["events"]
    for event, (kind, worker, stream, first, version, time) in zip(
        virtual_time.timetable(toy_run(papers, "async_momentum")).events(), recorded, strict=False
    ):
        [phase] = event.phases
        assert (event.kind, phase.worker, event.version) == ({"arrive": "end"}.get(kind, kind), worker, version)
        assert event.time == pytest.approx(time, abs=1e-9)
        assert kind == "arrive" or (phase.stream, phase.first) == (stream, first)
    events = virtual_time.timetable(toy_run(papers, "sync_sgd_first")).events()
    starts = (event.phases[0] for event in events if event.kind == "start")
    order = golden["shards_sanity_runs"]["order"]
    assert [[phase.worker, phase.stream] for _, phase in zip(order, starts, strict=False)] == order


@pytest.mark.slow
def test_data_and_orders_have_the_bits_of_the_notebook(golden):
    points, order, evaluated = draw()
    data, orders = golden["data"], golden["batch_order_phases_5"]
    assert [order[32_000 * shard :][:5] for shard in range(4)] == data["shard_first5_points"]
    assert evaluated[:10] == data["evaluation_first10_points"]
    assert sum(evaluated) == data["evaluation_sum_of_indices"]
    assert points[0, :3].tolist() == np.float32(data["first_point_first3"]).tolist()
    assert points[-1, -3:].tolist() == np.float32(data["last_point_last3"]).tolist()
    found = notebook_orders(42, 100 * 32)
    assert [len(each) for each in found] == orders["length_per_shard"]
    for shard, taken in enumerate(found):
        assert (taken[:8] - 32_000 * shard).tolist() == orders["first8_per_shard"][shard]
        batch = [order[sample] for sample in taken[:32]]
        assert [point // 32_000 for point in batch] == orders["first_batch_per_shard"][shard]["labels"]


def _first_losses(run: Run, golden: Any, folder: Path) -> int:
    torch.set_num_threads(1)
    session = build(run, folder, torch.device("cpu"), 0, 1)
    initial = torch.split(session.workers.rows.data[0], [65_000 * 512, 65_000, 4 * 65_000, 4])
    for found, recorded in zip(initial, golden["initial_parameters"].values(), strict=True):
        assert found[:3].tolist() == recorded["first3"]
        assert found.double().sum().item() == pytest.approx(recorded["sum"], rel=1e-12)
    [first, *_] = golden["round_1"]["training_losses"]
    losses = []
    with closing(session.log):
        for _, (inputs, targets) in zip(range(4), batches(session), strict=False):
            train_step(session, inputs, targets)
            losses.append(session.losses.latest[0, 0].item())
    assert losses == pytest.approx(first["loss_of_inner_steps_0_to_19"][:4], rel=1e-6)
    return 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_first_losses_have_the_bits_of_the_notebook(papers, golden, tmp_path: Path):
    """With their 33.6 million parameters; on another processor or BLAS the last digits may be others.

    In a process of its own, since it needs 3 GB.
    """
    run = toy_run(papers, "async_momentum").model_copy(
        update={"optimizer": toy_run(papers, "sync_sgd_first").optimizer, "epochs": 5}
    )
    with forked(_first_losses, run, golden, tmp_path, log=tmp_path / "log") as process:
        assert code_of(process) == 0, (tmp_path / "log").read_text()


def served(steps: int, inner: dict[str, Any] | None = None, **options: Any) -> tuple[Algorithm, list[np.ndarray]]:
    """Train on quadratics in phases of 3 steps: the algorithm, and the server's model after each step."""
    clock, lowest = VirtualClock(step_seconds=SECONDS), lambda: SimpleNamespace(choice=min)
    training = {"clock": clock, "choices": lowest}
    problem = Problem("async_local_sgd", CENTRES, START, **(inner or {}), training=training, h=3, **options)
    found = []
    for _ in range(steps):
        [due] = problem.sync.due() or ()
        centre = problem.centres[due.stream]
        problem.engine.gradient_of(due.worker, centre, centre, due.number)
        problem.update()
        found.append(problem.consensus())
    return problem.sync, found


def phase(start: np.ndarray, stream: int, momentum: np.ndarray | None = None) -> np.ndarray:
    """The change of three steps of SGD; with the inner momentum .5, which goes on from `momentum`, in place."""
    y = start.copy()
    for _ in range(3):
        step = y - CENTRES[stream]
        if momentum is not None:
            momentum[:] = step = 0.5 * momentum + step
        y = y - 0.1 * step
    return start - y


def arriving(
    models: list[np.ndarray], inner: Callable[[int], Any] = lambda worker: None
) -> Iterator[tuple[float, Any]]:
    """When the phases of four workers end, and their changes, each from the last of `models` at its start.

    `inner` gives the inner momentum with which a worker's phase starts.
    """
    begun, queue = [0] * 4, []

    def start(worker: int, now: float) -> None:
        stream = begun.index(min(begun))
        begun[stream] += 1
        heapq.heappush(queue, (now + 3 * SECONDS[worker], worker, phase(models[-1], stream, inner(worker))))

    for worker in range(4):
        start(worker, 0.0)
    while True:
        now, worker, change = heapq.heappop(queue)
        yield now, change
        start(worker, now)


@pytest.mark.parametrize("server", ["each", "buffer"])
def test_a_server_that_waits_for_nobody_is_its_recursion(server: str):
    x, b, total = START, 0 * START, 0 * START
    models, times = [x], []
    for number, (now, change) in enumerate(islice(arriving(models), 40), 1):
        total = total + 0.5 * change
        if server == "each" or number % 4 == 0:
            b = 0.9 * b + total
            x, total = x - 0.07 * b, 0 * START
        models.append(x)
        times.append(now)
    sync, found = served(120, server=server, weight=0.5, lr=0.07, momentum=0.9)
    np.testing.assert_allclose(found[2::3], models[1:], rtol=0, atol=1e-13)
    assert sync.virtual_seconds == pytest.approx(times[-1])


@pytest.mark.parametrize("kept", [None, "kept"])
def test_the_inner_optimizers_state_is_new_in_every_phase_or_kept_by_its_worker(kept: str | None):
    """The toy's rule, and that of the paper's language models, with an inner momentum that shows the difference."""
    momenta, models = [0 * START for _ in range(4)], [START]
    for _, change in islice(arriving(models, lambda worker: momenta[worker] if kept else 0 * START), 20):
        models.append(models[-1] - 0.3 * change / 4)
    inner = {"settings": {"momentum": 0.5}}
    _, found = served(60, inner, server="each", lr=0.3, momentum=0.0, optimizer_state=kept)
    np.testing.assert_allclose(found[2::3], models[1:], rtol=0, atol=1e-13)


def test_delayed_nesterov_is_its_recursion():
    """That of the code of HALoS with activation 0: momentum with every K-th change, a part of the gradient at once."""
    x, total, momentum, models = START, 0 * START, 0 * START, [START]
    for number, (_, change) in enumerate(islice(arriving(models), 40), 1):
        total = total + change
        if number % 4 == 0:
            momentum = 0.9 * momentum + total / 4
            x, total = x - 0.3 * (0.9 * momentum + change / 4), 0 * START
        else:
            x = x - 0.3 * change / 4
        models.append(x)
    _, found = served(120, server="delayed_nesterov", lr=0.3, momentum=0.9)
    np.testing.assert_allclose(found[2::3], models[1:], rtol=0, atol=1e-13)


def test_lanes_show_who_waits_for_the_slowest_and_who_is_away(papers):
    lanes = stretches(toy_run(papers, "sync_sgd_first"), until=133.2)
    expected = []
    for begin in (0.0, 66.6):
        for worker, pace in enumerate((0.58, 0.75, 1.51, 3.33)):
            expected += [(worker, "computes", begin, begin + 20 * pace)]
            expected += [(worker, "waits", begin + 20 * pace, begin + 66.6)] if worker < 3 else []
    rounded = [
        (worker, doing, round(start, 6), round(end, 6)) for worker, doing, start, end in lanes if end - start > 1e-6
    ]
    assert sorted(rounded) == sorted((*each[:2], round(each[2], 6), round(each[3], 6)) for each in expected)
    [run] = [run for run in papers.runs("async_local_sgd", "paper", "loss_of_workers", "each") if run.seed == 0]
    for worker in range(run.workers):
        own = sorted(each for each in stretches(run, until=500) if each.worker == worker)
        lane = sorted(own, key=lambda each: each.start)
        assert [each.start for each in lane] == [0.0, *(each.end for each in lane[:-1])]  # without gaps
        away = [(each.start, each.end) for each in lane if each.doing == "is away"]
        assert away == [(leaves, back) for who, leaves, back in run.clock.away if who == worker]


def timetable(clock: dict[str, Any], number: int, workers: int = 4, **options: Any) -> list[tuple[Any, ...]]:
    """(kind, worker, first, steps, time) of the first events; streams are taken from the lowest number on."""
    phases = AsyncLocalSGD(**options).timetable(workers, VirtualClock(**clock), 0, lambda: SimpleNamespace(choice=min))
    return [
        (event.kind, each.worker, each.first, each.steps, event.time)
        for event in islice(phases.events(), number)
        for each in event.phases
    ]


def test_dynamic_steps_follow_the_speed_as_in_the_notebook():
    found = timetable({"step_seconds": [0.58, 0.75, 1.51, 3.33]}, 4, h=20, least_steps=5)
    assert [steps for _, _, _, steps, _ in found] == [20, 15, 7, 5]


def test_who_leaves_loses_its_phase_and_starts_again_when_back():
    """Phases of 2 s; worker 1 is away from second 3 to 7, when the server has taken five phases of the others."""
    clock = {"step_seconds": [1.0, 1.0, 1.0], "away": [[1, 3.0, 7.0]]}
    found = timetable(clock, 20, workers=3, h=2)
    ends = [(worker, time) for kind, worker, _, _, time in found if kind == "end"]
    starts = [(worker, time) for kind, worker, _, _, time in found if kind == "start"]
    assert ends[:9] == [(0, 2.0), (1, 2.0), (2, 2.0), (0, 4.0), (2, 4.0), (0, 6.0), (2, 6.0), (0, 8.0), (2, 8.0)]
    assert [start for start in starts if start[0] == 1][:3] == [(1, 0.0), (1, 2.0), (1, 7.0)]


def test_a_round_goes_on_without_who_is_away():
    clock = {"step_seconds": [1.0, 1.0, 4.0], "away": [[2, 1.0, 5.0]], "message_seconds": 0.75}
    found = timetable(clock, 13, workers=3, h=2, server="mean")
    assert [(worker, time) for kind, worker, _, _, time in found if kind == "end"] == [
        (0, 3.0), (1, 3.0), (0, 6.0), (1, 6.0), (0, 15.0), (1, 15.0), (2, 15.0)
    ]  # fmt: skip


@pytest.mark.parametrize("options", [{"server": "mean"}, {"server": "buffer", "max_wait": 1000.0}])
def test_waiting_for_all_is_diloco_with_heavy_ball(options: dict[str, Any]):
    x, b, models = START.copy(), 0 * START, []
    for _ in range(5):
        b = 0.9 * b + np.mean([phase(x, stream) for stream in range(4)], axis=0)
        x = x - 0.5 * b
        models.append(x)
    sync, found = served(60, lr=0.5, momentum=0.9, **options)
    np.testing.assert_allclose(found[11::12], models, rtol=0, atol=1e-13)
    assert sync.virtual_seconds == pytest.approx(5 * 3 * 3.7)
    assert (sync.steps, sync.rounds) == (15, 5)

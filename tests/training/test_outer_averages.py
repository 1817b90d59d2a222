"""Streaming DiLoCo, DES-LOC and NoLoCo: recorded trajectories, identities, recursions written out, and overlap."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from machine import until
from processes import TIMEOUT, run_processes
from quadratic import Problem
from runs import make_run

from resync.base.settings.errors import ConfigError
from resync.workers.formulas import topology
from resync.workers.formulas.periods import Constant

CENTRES = np.array([[-1.5, 2.0, 0.3], [-0.5, -2.0, 1.1], [0.5, 2.0, -2.0], [1.5, -2.0, 0.7]])
START = [1.0, -1.0, 0.5]
EXACT = {"rtol": 0, "atol": 1e-12}
ADAM = {"optimizer": torch.optim.AdamW}
RECORDED = Path(__file__).parents[1] / "data/torchft_streaming_diloco.csv"


def recorded() -> dict[tuple[int, float], list[dict[str, str]]]:
    """torchft's values before every step, by delay and mixing, in the order of replicas and steps."""
    with RECORDED.open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    found: dict[tuple[int, float], list[dict[str, str]]] = {}
    for row in rows:
        found.setdefault((int(row["delay"]), float(row["mixing"])), []).append(row)
    return found


@pytest.mark.parametrize(("setting", "rows"), recorded().items(), ids=str)
def test_streaming_diloco_follows_torchfts_trajectories(setting, rows):
    """Two replicas with the gradient 2, lr 1, F = 2, H = 6, outer SGD with lr 2: all values are binary fractions."""
    delay, mixing = setting
    options = {"period": 6, "fragments": 2, "delay": delay, "mixing": mixing, "lr": 2.0, "momentum": 0.0}
    problem = Problem("streaming_diloco", np.zeros((2, 2)), [1.0, 1.0], settings={"lr": 1.0}, **options)
    assert len(rows) == 2 * 16
    for before in range(16):
        for replica in (0, 1):
            row = rows[16 * replica + before]
            assert problem.rows[replica].tolist() == [float(row["w0"]), float(row["w1"])]
            if row["anchor0"]:
                assert problem.sync.anchor.tolist() == [float(row["anchor0"]), float(row["anchor1"])]
        problem.sync.send_ahead()
        problem.workers.grads.fill_(2.0)
        problem.update()


@pytest.mark.parametrize("total", [12, 14])
def test_one_fragment_without_delay_is_diloco(total):
    """Also in a last round that the end of the training truncates."""
    training = {"total_steps": total}
    streaming = Problem("streaming_diloco", CENTRES, START, **ADAM, training=training, period=4, fragments=1, lr=0.7)
    diloco = Problem("diloco", CENTRES, START, **ADAM, training=training, period=4)
    for _ in range(total):
        assert streaming.step() == diloco.step()
        np.testing.assert_allclose(streaming.rows, diloco.rows, **EXACT)
        np.testing.assert_allclose(streaming.consensus(), diloco.consensus(), **EXACT)
    assert streaming.sync.transport.bytes_sent == diloco.sync.transport.bytes_sent


def packed(x: np.ndarray, compression: str) -> np.ndarray:
    """What arrives of a message, in numpy: to the nearest, ties to even."""
    x = x.astype(np.float32)
    if compression == "bfloat16":
        bits = x.view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    blocks = [x[first : first + 256] for first in range(0, len(x), 256)]
    scales = [np.float32(np.abs(block).max()) / np.float32(127) for block in blocks]
    return np.concatenate([
        np.rint(block / (scale or 1)) * scale for block, scale in zip(blocks, scales, strict=True)
    ])  # fmt: skip


@pytest.mark.parametrize(("compression", "step"), [("bfloat16", 2**-7), ("int8", 1 / 127)])
def test_compressed_diloco_is_its_recursion(compression: str, step: float):
    """600 numbers, of which the last block is not full, half of them zero; the error is at most half of a step."""
    centres = np.random.default_rng(3).normal(size=(4, 600)) * np.geomspace(1e-3, 1e3, 600)
    centres[:, 200:500] = 0
    start = [0.0] * 600
    problem = Problem("diloco", centres, start, period=Constant(h=3), compression=compression)
    x, anchor, momentum, worst = np.zeros((4, 600)), np.zeros(600), np.zeros(600), 0.0
    for number in range(12):
        x = x - 0.1 * (x - centres)
        if number % 3 == 2:
            arrived = [packed(anchor - each, compression) for each in x]
            for sent, got in zip(anchor - x, arrived, strict=True):
                largest = [np.abs(sent[first : first + 256]).max() for first in range(0, 600, 256)]
                size = np.abs(sent) if compression == "bfloat16" else np.repeat(largest, 256)[:600]
                worst = max(worst, np.max(np.abs(got - sent) / np.maximum(size, 1e-12)))
            change = np.mean(arrived, axis=0, dtype=float)
            momentum = 0.9 * momentum + change
            anchor = anchor - 0.7 * (change + 0.9 * momentum)
            x = np.tile(anchor, (4, 1))
        problem.step()
        np.testing.assert_allclose(problem.rows, x, rtol=1e-6, atol=1e-6)
    assert step / 4 < worst <= step / 2 * (1 + 1e-4)
    message = 1200 if compression == "bfloat16" else 600 + 3 * 4
    assert problem.sync.transport.bytes_sent == 4 * message


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_compressed_change_that_is_not_finite_stays_visible(value: float):
    centres = CENTRES.copy()
    centres[1, 0] = value
    problem = Problem("diloco", centres, START, period=Constant(h=1), compression="int8")
    problem.step()
    assert not np.isfinite(problem.rows[:, 0]).any()


def streaming_written_out(steps, period, fragments, delay, mixing, first=None):
    """x of all workers after every step, in numpy, with SGD of lr 0.1 and the paper's outer rate.

    A fragment's average arrives when its own steps are a multiple of the period; as in torchft (`first` None), they are
    counted as if all but the last fragment had begun before the training.
    """
    x, anchor, momentum = np.tile(START, (4, 1)), np.array(START), np.zeros(3)
    found, slot, change = [], period // fragments, {}
    begun = 0 if first else period - slot
    for step in range(1, steps + 1):
        x = x - 0.1 * (x - CENTRES)
        for fragment in range(fragments):
            part = [i for i in range(3) if i * fragments // 3 == fragment]
            own = step + begun - fragment * slot
            if own >= period - delay and (own + delay) % period == 0:
                change[fragment] = (anchor - x).mean(0)
            if own >= period and own % period == 0:
                momentum[part] = 0.9 * momentum[part] + change[fragment][part]
                anchor[part] -= 0.4 * (change[fragment][part] + 0.9 * momentum[part])
                x[:, part] = (1 - mixing) * anchor[part] + mixing * x[:, part]
        found.append(x.copy())
    return found


@pytest.mark.parametrize("first", [None, "period"])
@pytest.mark.parametrize(("period", "fragments", "delay", "mixing"), [(6, 3, 0, 0), (6, 3, 1, 0.3), (9, 1, 4, 0.5)])
def test_streaming_diloco_is_its_recursion_on_every_fragment(period, fragments, delay, mixing, first):
    """As in the paper, with first="period": each fragment is averaged first after `period` steps or more."""
    options = {"period": period, "fragments": fragments, "delay": delay, "mixing": mixing, "first": first}
    problem = Problem("streaming_diloco", CENTRES, START, **options)
    for step, expected in enumerate(streaming_written_out(20, **options), start=1):
        assert problem.step() == (step % (period // fragments) == 0)
        np.testing.assert_allclose(problem.rows, expected, **EXACT)
        np.testing.assert_allclose(problem.consensus(), expected.mean(0), **EXACT)
        if first and step < period - delay:
            assert problem.sync.transport.bytes_sent == 0
    averages = 20 // (period // fragments) - (fragments - 1 if first else 0)
    assert problem.sync.transport.bytes_sent == averages * 8 * 3 // fragments


def _overlapped(rank: int, world_size: int) -> dict:
    options = {"period": 6, "fragments": 2, "delay": 2, "mixing": 0.5}
    problem = Problem("streaming_diloco", CENTRES, START, rank=rank, world_size=world_size, **options)
    found = []
    for step in range(1, 13):
        problem.step()
        found.append((problem.rows, problem.consensus(), problem.sync.in_flight is not None))
        if step == 8:  # in flight: what is saved is sent again, and the message of now is received by nobody
            problem.sync.load_state_dict(problem.sync.state_dict())
    transport = problem.sync.transport
    return {"found": found, "sent": transport.bytes_sent, "known": transport.communication_is_known}


def test_a_fragment_travels_between_processes_while_steps_are_computed():
    alone = _overlapped(0, 1)
    assert [flies for _, _, flies in alone["found"]] == [True, True, False] * 4
    for size in (2, 4):
        ranks = run_processes(size, _overlapped)
        for step, (rows, consensus, flies) in enumerate(alone["found"]):
            found = [rank["found"][step] for rank in ranks]
            np.testing.assert_allclose(np.concatenate([each[0] for each in found]), rows, **EXACT)
            assert all(np.allclose(each[1], consensus, **EXACT) and each[2] == flies for each in found)
        assert {rank["sent"] for rank in ranks} == {alone["sent"]} == {4 * 8 * 3 // 2}
        assert alone["known"]
        assert not any(rank["known"] for rank in ranks)


def _arrives_by_itself(rank: int, world_size: int) -> list[float]:
    transport = Problem("local", np.zeros((4, 1)), [0.0], period=1, rank=rank, world_size=world_size).sync.transport
    rows = torch.arange(4.0)[transport.local].unsqueeze(1)
    posted = transport.post_mean(rows)
    until(posted.request.is_completed)
    assert rows[:, 0].tolist() == list(range(4))[transport.local]
    return posted.wait().tolist()


@pytest.mark.timeout(TIMEOUT)
def test_an_average_arrives_while_nobody_waits_for_it():
    assert run_processes(2, _arrives_by_itself) == [[1.5]] * 2


def test_desloc_averages_each_state_in_its_own_period():
    """Adam of every worker written out, with averages of x, u and v after 2, 3 and 12 (6 periods) steps."""
    problem = Problem("desloc", CENTRES, START, optimizer=torch.optim.Adam, period=2, first_moment_period=3)
    x, u, v = np.tile(START, (4, 1)), np.zeros((4, 3)), np.zeros((4, 3))
    for t in range(1, 15):
        gradient = x - CENTRES
        u, v = 0.9 * u + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        x = x - 0.1 * (u / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        x, u, v = (np.tile(each.mean(0), (4, 1)) if t % k == 0 else each for each, k in ((x, 2), (u, 3), (v, 12)))
        assert problem.step() == (t % 2 == 0)
        np.testing.assert_allclose(problem.rows, x, **EXACT)
    assert problem.sync.transport.bytes_sent == (7 + 4 + 1) * 24


def test_noloco_is_its_recursion_on_the_pairs_of_every_round():
    problem = Problem("noloco", CENTRES, START, training={"seed": 4}, period=Constant(h=3))
    x, v, met = np.tile(START, (4, 1)), np.zeros((4, 3)), set()
    for number in range(5):
        w = CENTRES + 0.9**3 * (x - CENTRES)
        pairs = [topology.out_peers("random_matching", k, 4, number, seed=4)[0] for k in range(4)]
        met.add(tuple(pairs))
        change = ((w - x) + (w - x)[pairs]) / 2
        v = 0.5 * v + 0.7 * change + 0.7 * ((x + x[pairs]) / 2 - x)
        x = x + v
        for _ in range(3):
            problem.step()
        np.testing.assert_allclose(problem.rows, x, **EXACT)
    assert len(met) > 1
    assert problem.sync.transport.bytes_sent == 5 * 2 * 24


def test_noloco_of_two_workers_is_diloco_with_heavy_ball():
    group = Problem("noloco", CENTRES[:2], START, **ADAM, period=Constant(h=3))
    diloco, nesterov = (
        Problem("diloco", CENTRES[:2], START, **ADAM, period=3, momentum=0.5, nesterov=form) for form in (False, True)
    )
    for _ in range(12):
        for problem in (group, diloco, nesterov):
            problem.step()
        np.testing.assert_allclose(group.rows, diloco.rows, **EXACT)
    assert not np.allclose(group.rows, nesterov.rows, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("streaming_diloco", {"period": 4, "fragments": 2, "delay": 1}),
        ("noloco", {"period": Constant(h=2)}),
    ],
)
def test_without_gradients_nothing_moves(name, options):
    for size in (4, 3, 1):
        problem = Problem(name, CENTRES[:size], START, **options)
        for _ in range(9):
            problem.step(still=True)
        np.testing.assert_allclose(problem.rows, np.tile(START, (size, 1)), **EXACT)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("streaming_diloco", {"period": 7, "fragments": 2}, "period: found 7, allowed: a multiple of fragments = 2"),
        ("streaming_diloco", {"period": 6, "fragments": 2, "delay": 3}, "delay: found 3, allowed: less than .* = 3"),
        ("streaming_diloco", {"period": 8, "fragments": 4}, "fragments: found 4, allowed: at most the 3 parameters"),
    ],
)
def test_rounds_that_cannot_be_are_errors(name, options, message):
    with pytest.raises(ValueError, match=message):
        Problem(name, CENTRES, START, **options)


H2 = {"rule": "constant", "h": 2}


@pytest.mark.parametrize(
    ("sync", "message"),
    [
        ({"name": "dpsgd", "topology": "hypercube"}, "topology hypercube with 5 workers and 1 peers: expected"),
        ({"name": "sgp", "topology": "ou_equidyn", "peers": [[0, 1], [1, 2]]}, "ou_equidyn has 1 peer per worker"),
        ({"name": "dpsgd"}, "bipartite_exponential with 5 workers: expected an even number of workers"),
        ({"name": "slowmo", "period": H2, "base": {"name": "sgp", "peers": 5}}, "exponential .*, found peers = 5"),
    ],
)
def test_a_graph_that_does_not_exist_is_an_error_of_the_configuration(tmp_path, sync, message):
    with pytest.raises(ConfigError, match=rf"config\.yaml:\d+: sync\..*topology: .*{message}"):
        make_run(tmp_path, workers=5, batch_size=60, sync=sync)

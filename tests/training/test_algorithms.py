"""The algorithms against recorded traces, closed forms and each other, on quadratics in float64."""

import heapq
import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import run_processes
from quadratic import NUMBERED, Problem
from torch.utils._python_dispatch import TorchDispatchMode

from resync.base.streams import stream
from resync.workers.formulas import mixing, topology
from resync.workers.formulas.clock import VirtualClock
from resync.workers.formulas.periods import Constant
from resync.workers.sync.algorithm import Due

TRACES = json.loads((Path(__file__).parents[1] / "data/sgp_traces_n4.json").read_text())["training_2023"]
CENTRES = np.array([[-1.5, 2.0], [-0.5, -2.0], [0.5, 2.0], [1.5, -2.0]])
START = [1.0, -1.0]
EXACT = {"rtol": 0, "atol": 1e-12}


def name_of(trace) -> str:
    return f"{'overlap' if trace['overlap'] else 'sync'}-{trace['graph_type']}"


class Divided(TorchDispatchMode):
    """The shapes that operations divide in place."""

    def __init__(self):
        super().__init__()
        self.shapes = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        if operation is torch.ops.aten.div_.Tensor:
            self.shapes.append(args[0].shape)
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize(("options", "times"), [({}, 0), ({"staleness": 2}, 8)], ids=["weights 1", "other weights"])
def test_overlapping_gossip_divides_by_its_weights_where_they_are_not_1(options, times):
    """It passes over all parameters."""
    problem = Problem("osgp", [[1.0], [2.0], [4.0], [9.0]], [0.0], **options)
    with Divided() as divided:
        for _ in range(8):
            problem.step()
    assert divided.shapes.count(problem.workers.rows.shape) == times


@pytest.mark.parametrize("trace", TRACES, ids=name_of)
def test_training_is_that_of_the_original(trace):
    """Parameters at the forward pass, weights, gradients and numerators, until the original repeats a peer."""
    method = "osgp" if trace["overlap"] else "sgp"
    graph = NUMBERED[trace["graph_type"]]
    problem = Problem(method, trace["c"], trace["theta0"], topology=graph)
    # The version that was recorded lists the +2 and the -2 peer of graph 0 although they are the same.
    same = 4 if trace["graph_type"] == 0 else len(trace["iterations"])
    for recorded in trace["iterations"][:same]:
        gradients = problem.gradients()
        np.testing.assert_allclose(problem.rows, recorded["theta_at_forward"], **EXACT)
        np.testing.assert_allclose(problem.sync.weights[:, 0], recorded["ps_weight_at_forward"], **EXACT)
        np.testing.assert_allclose(gradients, recorded["grad"], **EXACT)
        problem.sync.after_backward()
        problem.optimizer.step()
        np.testing.assert_allclose(problem.rows, recorded["raw_param_after_step"], **EXACT)
        problem.sync.after_step(0.1)


def test_overlap_is_its_recursion_with_the_full_gradient_step():
    """x = x / 2 + (x of the in-peer one step before) / 2 - lr * g(x / w), written out for two peers as well."""
    for peers in (1, 2):
        problem = Problem("osgp", CENTRES, START, topology="exponential", peers=peers)
        x, weights = np.tile(START, (4, 1)).astype(float), np.ones(4)
        arriving, arriving_weights = np.zeros_like(x), np.zeros(4)
        for k in range(9):
            x, weights = x + arriving, weights + arriving_weights
            np.testing.assert_allclose(problem.rows, x / weights[:, None], **EXACT)
            heard = [topology.in_peers("exponential", rank, 4, k, peers) for rank in range(4)]
            arriving = np.array([sum(x[s] for s in senders) for senders in heard]) / (peers + 1)
            arriving_weights = np.array([sum(weights[s] for s in senders) for senders in heard]) / (peers + 1)
            x, weights = x / (peers + 1), weights / (peers + 1)
            x = x - 0.1 * (x / weights[:, None] - CENTRES)
            problem.step()


STALE = [
    {"staleness": 1},
    {"staleness": 3},
    {"staleness": 2, "peers": 2},
    {"staleness": 2, "topology": "bipartite_exponential"},
    {"staleness": 2, "topology": "random", "peers": 2},
]


def events(steps: int, staleness: int, topology_name: str, peers: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """z and w of all workers after every step, message by message: each is taken before the step it arrives in."""
    x, weights = np.tile(START, (4, 1)).astype(float), np.ones(4)
    mixes, free, travelling, found = [0] * 4, [0] * 4, [], []
    for k in range(steps + 1):
        for arrival, receiver, share_of_x, share_of_weight in travelling:
            if arrival == k:
                x[receiver] += share_of_x
                weights[receiver] += share_of_weight
        found.append((x / weights[:, None], weights.copy()))
        late = stream(5, "lateness", epoch=k).integers(staleness + 1, size=4)
        for worker in range(4):
            if free[worker] > k:
                continue
            free[worker] = k + 1 + late[worker]
            receivers = topology.out_peers(topology_name, worker, 4, mixes[worker], peers, seed=5)
            mixes[worker] += 1
            x[worker] /= 1 + len(receivers)
            weights[worker] /= 1 + len(receivers)
            travelling += [(free[worker], receiver, x[worker].copy(), weights[worker]) for receiver in receivers]
        x = x - 0.1 * (x / weights[:, None] - CENTRES)
    return found[1:]


def late_gossip(rank: int, world_size: int, options: dict) -> list[tuple[np.ndarray, np.ndarray]]:
    """The same by OSGP: z and w of this process's workers after every step."""
    problem = Problem("osgp", CENTRES, START, training={"seed": 5}, rank=rank, world_size=world_size, **options)
    found = []
    for _ in range(25):
        problem.step()
        found.append((problem.rows, problem.sync.weights[:, 0].numpy().copy()))
    problem.sync.synchronise()  # no message may arrive after the end
    return found


@pytest.mark.parametrize("options", STALE, ids=str)
def test_late_messages_are_taken_when_they_arrive(options):
    expected = events(25, options["staleness"], options.get("topology", "exponential"), options.get("peers", 1))
    assert len({tuple(weights.round(6)) for _, weights in expected}) > 10  # workers differ in what they have sent
    for found, wanted in zip(late_gossip(0, 1, options), expected, strict=True):
        np.testing.assert_allclose(found[0], wanted[0], **EXACT)
        np.testing.assert_allclose(found[1], wanted[1], **EXACT)


def test_late_messages_between_processes_are_taken_when_they_arrive():
    for size in (2, 4):
        for options in STALE[1:3]:
            ranks = run_processes(size, late_gossip, options)
            for step, wanted in enumerate(events(25, options["staleness"], "exponential", options.get("peers", 1))):
                for part in (0, 1):
                    found = np.concatenate([rank[step][part] for rank in ranks])
                    np.testing.assert_allclose(found, wanted[part], **EXACT)


@pytest.mark.parametrize("options", [{}, {"peers": 2}, {"topology": "linear"}], ids=str)
@pytest.mark.parametrize("biased", [False, True])
def test_overlap_is_evaluated_where_its_gradients_are_zero(biased, options):
    """Every worker has the minimiser 3."""
    problem = Problem("osgp", np.full((4, 1), 3.0), [1.0], settings={"lr": 0.3}, biased=biased, **options)
    for _ in range(400):
        problem.step()
    np.testing.assert_allclose(problem.consensus(), 3.0, rtol=0, atol=1e-9)
    np.testing.assert_allclose(problem.gradients(), 0.0, rtol=0, atol=1e-9)
    np.testing.assert_allclose(problem.consensus(), 3.0, rtol=0, atol=1e-9)
    problem.sync.synchronise()
    np.testing.assert_allclose(problem.rows, 3.0, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("osgp", {"biased": True, "staleness": 1}, "staleness: found 1 with biased, allowed: 0"),
        ("osgp", {"biased": True, "peers": [(0, 2), (4, 1)]}, "peers: found phases with biased, allowed: an integer"),
        ("osgp", {"biased": True, "topology": "base_graph"}, "biased: found true with topology base_graph.*: false"),
        ("osgp", {"staleness": 1, "topology": "ou_equidyn"}, "staleness: found 1 with topology ou_equidyn.*allowed: 0"),
        (
            "slowmo",
            {"period": 2, "base": {"name": "osgp", "biased": True}},
            r"base\.biased: found true, allowed: false, because an average gathers all shares",
        ),
    ],
)
def test_without_weights_shares_must_not_change(name, options, message):
    with pytest.raises(ValueError, match=message):
        Problem(name, CENTRES, START, **options)


@st.composite
def gossips(draw):
    size = draw(st.integers(2, 12))
    name = draw(st.sampled_from(sorted(topology.TOPOLOGIES)))
    if topology.resolve(name).bipartite:
        size += size % 2
    if name == "hypercube":
        size = draw(st.sampled_from([2, 4, 8]))
    listed = name != "exponential" and not topology.resolve(name).weighted
    most = len(topology.peer_list(name, 0, size)) if listed else size - 1
    if name in ("od_equidyn", "ou_equidyn", "random_matching", "undirected_ring", "chain", "binary_tree", "star"):
        most = 1
    numbers = st.just(size - 1) if name == "complete" else st.integers(1, min(3, most))
    phases = [(0, draw(numbers)), (draw(st.integers(1, 4)), draw(numbers)), (draw(st.integers(5, 8)), 0)]
    method = draw(st.sampled_from(["sgp", "osgp"]))
    late = method == "osgp" and not topology.resolve(name).weighted
    options = {"staleness": draw(st.integers(0, 3))} if late else {}
    return method, size, {"topology": name, "peers": phases, **options}


@given(gossips(), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=60)
def test_nothing_is_lost_in_mixing(gossip, seed):
    """Without gradients the average over workers, with what is on its way, stays; through changes of peers too."""
    method, size, options = gossip
    values = np.random.default_rng(seed).normal(size=(size, 2))
    problem = Problem(method, values, START, **options)
    problem.scatter(values)
    for _ in range(10):
        problem.step(still=True)
        np.testing.assert_allclose(problem.consensus(), values.mean(0), rtol=0, atol=1e-10)
    assert problem.sync.weights.min() > 0
    problem.sync.synchronise()
    np.testing.assert_allclose(problem.rows, np.tile(values.mean(0), (size, 1)), rtol=0, atol=1e-10)


@pytest.mark.parametrize("method", ["dpsgd", "sgp"])
def test_gossip_on_the_base_graph_averages_six_workers_in_four_steps(method):
    """Its authors' number of steps; push-sum weights are not sent, and workers without a peer wait."""
    values = np.random.default_rng(0).normal(size=(6, 2))
    problem = Problem(method, values, START, topology="base_graph")
    problem.scatter(values)
    for _ in range(4):
        assert np.ptp(problem.rows, axis=0).min() > 1e-3
        problem.step(still=True)
    np.testing.assert_allclose(problem.rows, np.tile(values.mean(0), (6, 1)), **EXACT)
    assert problem.sync.transport.bytes_of_all == 16 * (4 + 4 + 4 + 6)


@pytest.mark.parametrize("options", [{"topology": "random"}, {"topology": "linear"}])
def test_debiased_parameters_reach_the_average(options):
    problem = Problem("sgp", CENTRES, START, **options)
    problem.scatter(CENTRES)
    for _ in range(80):
        problem.step(still=True)
    np.testing.assert_allclose(problem.rows, np.tile(CENTRES.mean(0), (4, 1)), rtol=0, atol=1e-6)


def test_weights_travel_where_mixing_is_not_doubly_stochastic():
    for name, sent in (("exponential", 16), ("random", 16 + 8)):
        problem = Problem("sgp", CENTRES, START, topology=name)
        problem.step()
        assert problem.sync.transport.bytes_sent == sent  # 2 float64, and a float64 for the weight


@pytest.mark.parametrize(
    ("topology_of", "peers"), [("exponential", 1), ("directed_exponential", 2), ("random", 1), ("random", 2)]
)
def test_momentum_travels_with_the_parameters(topology_of, peers):
    """Double averaging: v = M (0.9 v + g(x / w)), x = M (x - 0.1 (g + 0.9 v)), w = M w, written out."""
    options = {"topology": topology_of, "peers": peers, "average_state": ["momentum_buffer"]}
    problem = Problem("sgp", CENTRES, START, settings={"momentum": 0.9, "nesterov": True}, **options)
    problem.scatter(CENTRES)
    x, v, w = CENTRES.copy(), np.zeros((4, 2)), np.ones((4, 1))
    for k in range(9):
        gradient = x / w - CENTRES[::-1]
        problem.centres = [torch.tensor(centre) for centre in CENTRES[::-1].copy()]
        mix = mixing.matrix(topology_of, 4, k, peers)
        v = 0.9 * v + gradient
        x, v, w = mix @ (x - 0.1 * (gradient + 0.9 * v)), mix @ v, mix @ w
        problem.step()
        np.testing.assert_allclose(problem.rows, x / w, **EXACT)
        momentum = problem.optimizer.state[problem.workers.rows]["momentum_buffer"]
        np.testing.assert_allclose(momentum.numpy(), v, **EXACT)
    weight = 8 if topology_of == "random" else 0
    assert problem.sync.transport.bytes_sent == 9 * peers * (2 * 16 + weight)  # two vectors of two float64 to each peer
    problem.sync.synchronise()
    np.testing.assert_allclose(problem.rows, np.tile(x.mean(0), (4, 1)), **EXACT)
    np.testing.assert_allclose(momentum.numpy(), v / w, **EXACT)


def test_local_momentum_is_averaged_with_the_parameters_at_the_end_of_a_round():
    """v = 0.9 v + g(x), x = x - 0.1 (g + 0.9 v), and after every third step the means of both, written out."""
    for average_state in ([], ["momentum_buffer"]):
        options = {"period": Constant(h=3), "average_state": average_state}
        problem = Problem("local", CENTRES, START, settings={"momentum": 0.9, "nesterov": True}, **options)
        x, v = np.tile(START, (4, 1)).astype(float), np.zeros((4, 2))
        for k in range(8):
            gradient = x - CENTRES
            v = 0.9 * v + gradient
            x = x - 0.1 * (gradient + 0.9 * v)
            if k % 3 == 2:
                x = np.tile(x.mean(0), (4, 1))
                v = np.tile(v.mean(0), (4, 1)) if average_state else v
            problem.step()
            np.testing.assert_allclose(problem.rows, x, **EXACT)
            momentum = problem.optimizer.state[problem.workers.rows]["momentum_buffer"]
            np.testing.assert_allclose(momentum.numpy(), v, **EXACT)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sgp", {"average_state": ["exp_avg"]}),
        ("local", {"average_state": ["exp_avg"], "period": Constant(h=1)}),
        ("desloc", {"period": 1, "first_moment_period": 1}),
    ],
)
def test_a_field_that_does_not_exist_cannot_travel(name, options):
    problem = Problem(name, CENTRES, START, **options)
    with pytest.raises(ValueError, match=r"no state 'exp_avg', allowed: none"):
        problem.step()


@pytest.mark.parametrize("adam", [False, True])
def test_averages_of_parameters_and_gradients_differ_for_adam_only(adam):
    optimizer = {"optimizer": torch.optim.AdamW} if adam else {"settings": {"momentum": 0.9, "weight_decay": 0.01}}
    found = [Problem("allreduce", CENTRES, START, average=each, **optimizer) for each in ("gradients", "parameters")]
    for _ in range(6):
        for problem in found:
            problem.step()
    gradients, parameters = (problem.rows for problem in found)
    assert np.allclose(gradients, parameters, **EXACT) is not adam
    assert np.ptp(parameters, axis=0).max() == 0
    assert found[1].sync.transport.bytes_sent == 6 * 16


def test_biased_overlap_ignores_the_weights():
    problem = Problem("osgp", CENTRES, START, biased=True)
    problem.gradients()
    np.testing.assert_allclose(problem.rows, np.tile(START, (4, 1)) / 2, **EXACT)


def test_complete_graph_gossip_is_allreduce():
    gossip, parallel = Problem("sgp", CENTRES, START, topology="complete"), Problem("allreduce", CENTRES, START)
    for _ in range(6):
        gossip.step()
        parallel.step()
        np.testing.assert_allclose(gossip.rows, parallel.rows, **EXACT)


def test_a_phase_without_peers_is_allreduce_also_with_momentum():
    momentum = {"momentum": 0.9, "nesterov": True}
    hybrid = Problem("sgp", CENTRES, START, settings=momentum, peers=[(0, 0), (4, 1)])
    parallel = Problem("allreduce", CENTRES, START, settings=momentum)
    for _ in range(4):
        hybrid.step()
        parallel.step()
        np.testing.assert_allclose(hybrid.rows, parallel.rows, **EXACT)
    hybrid.step()
    assert np.ptp(hybrid.rows, axis=0).max() > 1e-3


def test_every_phase_begins_with_the_first_mixing_step_of_its_graph():
    """After four steps, with a graph that repeats after three."""
    centres = np.vstack([CENTRES, CENTRES + 0.7])
    hybrid = Problem("sgp", centres, START, peers=[(0, 0), (4, 1)])
    for _ in range(4):
        hybrid.step()
    gossip = Problem("sgp", centres, hybrid.rows[0], peers=1)
    for _ in range(5):
        hybrid.step()
        gossip.step()
        np.testing.assert_allclose(hybrid.rows, gossip.rows, **EXACT)


@pytest.mark.parametrize("half_duplex", [False, True])
def test_dpsgd_averages_pairs(half_duplex):
    problem = Problem("dpsgd", CENTRES, START, half_duplex=half_duplex)
    problem.scatter(CENTRES)
    problem.step(still=True)
    assert problem.sync.transport.bytes_sent == 16
    pairs = [topology.out_peers("bipartite_exponential", rank, 4, 0)[0] for rank in range(4)]
    np.testing.assert_allclose(problem.rows, (CENTRES + CENTRES[pairs]) / 2, **EXACT)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topology": "exponential"}, "topology: found 'exponential', allowed: bipartite_exponential, .*, complete"),
        ({"topology": "ring", "peers": 1}, r"symmetric mixing.*allowed: ring with 2 peers, or another topology"),
    ],
)
def test_dpsgd_refuses_what_is_not_symmetric(options, message):
    with pytest.raises(ValueError, match=message):
        Problem("dpsgd", CENTRES, START, **options)


def test_a_single_worker_only_steps():
    for name in ("sgp", "osgp", "dpsgd", "adpsgd"):
        problem = Problem(name, CENTRES[:1], START)
        for _ in range(3):
            problem.step()
        expected = CENTRES[0] + 0.9**3 * (np.array(START) - CENTRES[0])
        np.testing.assert_allclose(problem.rows[0], expected, **EXACT)


CLOCKS = {
    "constant": None,
    "jitter": VirtualClock(step_seconds=(1.0,), jitter=1.0),
    "straggler": VirtualClock(step_seconds=(3.0, 1.0, 1.0, 1.0)),
    "trace": VirtualClock(trace=((1.0, 2.5), (1.5,), (0.7, 0.7, 3.0), (1.1,))),
    "away": VirtualClock(step_seconds=(1.0, 1.3, 0.9, 1.1), away=((2, 2.0, 6.5), (1, 9.0, 10.0))),
}


def step_due(problem: Problem, still: bool = False) -> list[Due]:
    """One step of the workers whose turn it is."""
    due = problem.sync.due()
    if due is None:
        problem.step(still)
        return []
    for each in due:
        problem.engine.gradient_of(each.worker, problem.centres[each.worker], problem.centres[each.worker], 0)
    problem.update(still)
    return list(due)


@pytest.mark.parametrize("times", CLOCKS)
def test_asynchronous_pairs_conserve_the_sum_and_meet(times):
    problem = Problem("adpsgd", CENTRES, START, training={"clock": CLOCKS[times]})
    problem.scatter(CENTRES)
    problem.sync.x.copy_(problem.sync.rows)
    while problem.sync.steps < 60:
        step_due(problem, still=True)
        np.testing.assert_allclose(problem.consensus(), CENTRES.mean(0), **EXACT)
    np.testing.assert_allclose(problem.rows, np.tile(CENTRES.mean(0), (4, 1)), rtol=0, atol=1e-6)


def events_of(clock: VirtualClock, number: int) -> Iterator[tuple[float, int]]:
    """(time, worker) of the gradients that four workers finish, one after the other."""
    queue = [(clock.seconds(0, worker, 0, 1), worker, 0) for worker in range(4)]
    for _ in range(number):
        heapq.heapify(queue)
        time, worker, count = heapq.heappop(queue)
        gone = next((back for who, leaves, back in clock.away or () if who == worker and leaves < time <= back), None)
        began = time - clock.seconds(0, worker, count, 1)
        if gone and began < gone:
            heapq.heappush(queue, (gone + clock.seconds(0, worker, count, 1), worker, count))
            continue
        yield time, worker
        heapq.heappush(queue, (time + clock.seconds(0, worker, count + 1, 1), worker, count + 1))


@pytest.mark.parametrize("times", ["jitter", "straggler", "trace", "away"])
def test_asynchronous_pairs_are_strictly_sequential_events(times):
    """Each worker's AdamW and each average written out, one event after the other: no average has a later gradient."""
    clock = CLOCKS[times]
    problem = Problem("adpsgd", CENTRES, START, optimizer=torch.optim.AdamW, training={"clock": clock})
    x = [torch.tensor(START, dtype=torch.float64, requires_grad=True) for _ in range(4)]
    z = [np.array(START) for _ in range(4)]
    optimizers = [torch.optim.AdamW([each], lr=0.1) for each in x]
    averages, ages = [0] * 4, []
    for time, together in groupby(events_of(clock, 80), key=lambda event: event[0]):
        finished = [worker for _, worker in together]
        assert [each.worker for each in step_due(problem)] == finished
        assert problem.sync.virtual_seconds == pytest.approx(time)
        for worker in finished:
            ages.append(np.abs(x[worker].detach().numpy() - z[worker]).max())
            x[worker].grad = torch.as_tensor(z[worker]) - torch.as_tensor(CENTRES[worker])
            optimizers[worker].step()
        for worker in finished:
            other = topology.partner("bipartite_exponential", worker, 4, averages[worker])
            if other is not None and not clock.away_at(other, time):
                averages[worker] += 1
                with torch.no_grad():
                    mean = (x[worker] + x[other]) / 2
                    x[worker].copy_(mean)
                    x[other].copy_(mean)
            z[worker] = x[worker].detach().numpy().copy()
        own = problem.sync.own_rows().numpy()
        np.testing.assert_allclose(own, np.stack([each.detach().numpy() for each in x]), **EXACT)
        np.testing.assert_allclose(problem.rows, np.stack(z), **EXACT)
    steps = [problem.optimizer.state[each]["step"].item() for each in problem.optimizer.param_groups[0]["params"]]
    assert steps == problem.sync.finished
    assert len(set(steps)) > 1
    assert max(ages) > 0  # gradients are old


def test_simulated_pairs_that_share_no_worker_are_averaged_in_one_exchange(monkeypatch):
    problem = Problem("adpsgd", [*CENTRES, *CENTRES], START)
    post, posted = problem.sync.transport.post, []
    monkeypatch.setattr(problem.sync.transport, "post", lambda *given: (posted.append(given), post(*given))[1])
    for _ in range(3):
        problem.step()
    assert len(posted) == 3
    assert problem.sync.transport.bytes_of_all == 3 * 8 * len(START) * 8


WARM_UP = [1e-7, 0.02, 0.04, 0.06, 0.08, 0.1, 0.1, 0.05, 0.02]
FROM_ZERO = [0.0, 0.03, 0.06, 0.09, 0.0, 0.0, 0.1, 0.05, 0.0]


@pytest.mark.parametrize("rates", [WARM_UP, FROM_ZERO], ids=["warm-up", "from and to 0"])
def test_slowmo_is_its_recursion_with_the_last_learning_rate_of_a_round(rates):
    """The learning rate changes in every step, and is 0 in the first or the last one of a round."""
    slow = Problem("slowmo", CENTRES, START, period=Constant(h=3), alpha=0.9, beta=0.6)
    anchor, momentum = np.array(START), np.zeros(2)
    for first in (0, 3, 6):
        x = np.tile(anchor, (4, 1))
        for lr in rates[first : first + 3]:
            x = x - lr * (x - CENTRES)
            slow.optimizer.param_groups[0]["lr"] = lr
            slow.step()
        gamma = [lr for lr in rates[first : first + 3] if lr][-1]
        change = (anchor - x.mean(0)) / gamma
        momentum = 0.6 * momentum + change
        anchor = anchor - 0.9 * gamma * momentum
        np.testing.assert_allclose(slow.rows, np.tile(anchor, (4, 1)), **EXACT)


@pytest.mark.parametrize(
    ("options", "lr", "momentum"),
    [({"name": "slowmo", "beta": 0.0, "alpha": 0.5}, 0.5, 0.0), ({"name": "diloco"}, 0.7, 0.9)],
)
def test_a_learning_rate_of_0_drops_no_round_of_lookahead_and_diloco(options, lr, momentum):
    """The first round is pulled like any other although its first and its last step have a learning rate of 0."""
    problem = Problem(centres=CENTRES, theta0=START, period=Constant(h=3), **options)
    anchor, buffer = np.array(START), np.zeros(2)
    for rates in ([0.0, 0.1, 0.0], [0.1, 0.05, 0.0], [0.0, 0.0, 0.0]):
        x = np.tile(anchor, (4, 1))
        for rate in rates:
            x = x - rate * (x - CENTRES)
            problem.optimizer.param_groups[0]["lr"] = rate
            problem.step()
        change = anchor - x.mean(0)
        buffer = momentum * buffer + change
        anchor = anchor - lr * (change + momentum * buffer)
        np.testing.assert_allclose(problem.rows, np.tile(anchor, (4, 1)), **EXACT)


def test_a_round_without_any_learning_rate_keeps_what_it_has():
    slow = Problem("slowmo", CENTRES, START, period=Constant(h=2), beta=0.6)
    for lr in (0.1, 0.1, 0.0, 0.0):
        slow.optimizer.param_groups[0]["lr"] = lr
        before = slow.rows
        slow.step()
    assert np.array_equal(slow.rows, before)
    assert slow.sync.rounds == 2


BASES = [
    "none",
    "allreduce",
    {"name": "sgp"},
    {"name": "sgp", "topology": "random"},
    {"name": "osgp"},
    {"name": "osgp", "staleness": 2, "peers": 2},
]


@pytest.mark.parametrize(
    ("base", "average"), [(base, average) for base in BASES for average in (True, False) if average or base != "none"]
)
def test_slowmo_without_gradients_moves_nothing_on_any_base(base, average):
    """Mass that travels, or that weights count, is no gradient."""
    slow = Problem("slowmo", np.zeros((6, 1)), [1.0], period=Constant(h=4), beta=0.6, base=base, average=average)
    for _ in range(18):
        slow.step(still=True)
        np.testing.assert_allclose(slow.consensus(), 1.0, **EXACT)
    slow.gradients()
    np.testing.assert_allclose(slow.rows, 1.0, **EXACT)


def test_slowmo_without_outer_momentum_is_local_sgd():
    slow = Problem("slowmo", CENTRES, START, period=Constant(h=3), alpha=1.0, beta=0.0)
    local = Problem("local", CENTRES, START, period=Constant(h=3))
    for _ in range(7):
        assert slow.step() == local.step()
        np.testing.assert_allclose(slow.rows, local.rows, **EXACT)


@pytest.mark.parametrize(("workers", "options"), [(1, {}), (4, {"base": "allreduce", "average": False})])
def test_outer_steps_without_momentum_on_equal_workers_are_lookahead(workers, options):
    centres = CENTRES[:workers]
    ahead = Problem("slowmo", centres, START, period=Constant(h=5), alpha=0.4, beta=0.0, **options)
    slow, centre = np.array(START), centres.mean(0)
    for _ in range(3):
        fast = centre + 0.9**5 * (slow - centre)
        slow = slow + 0.4 * (fast - slow)
        for _ in range(5):
            ahead.step()
        np.testing.assert_allclose(ahead.rows, np.tile(slow, (workers, 1)), **EXACT)


@pytest.mark.parametrize(("buffers", "expected"), [("zero", "none"), ("keep", "own"), ("average", "mean")])
def test_slowmo_treats_the_inner_buffers_as_told(buffers, expected):
    options = {"period": Constant(h=2), "alpha": 1.0, "beta": 0.0, "buffers": buffers}
    slow = Problem("slowmo", CENTRES, START, settings={"momentum": 0.9}, **options)
    free = Problem("local", CENTRES, START, settings={"momentum": 0.9}, period=Constant(h=2))
    for _ in range(2):
        slow.step()
        free.step()
    own = free.optimizer.state[free.workers.rows]["momentum_buffer"].numpy()
    after = slow.optimizer.state[slow.workers.rows]
    if expected == "none":
        assert not after
    else:
        wanted = own if expected == "own" else np.tile(own.mean(0), (4, 1))
        np.testing.assert_allclose(after["momentum_buffer"].numpy(), wanted, **EXACT)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("allreduce", {}),
        ("allreduce", {"average": "parameters"}),
        ("local", {"period": Constant(h=4)}),
        ("sgp", {"topology": "random"}),
        ("osgp", {"staleness": 1, "peers": [(0, 2), (4, 1)]}),
        ("dpsgd", {}),
        ("adpsgd", {}),
        ("slowmo", {"period": Constant(h=4), "base": "osgp"}),
        ("slowmo", {"period": Constant(h=4), "base": "sgp", "average": False}),
        ("diloco", {"period": Constant(h=4)}),
        ("diloco_progress", {"period": Constant(h=4), "reference": 0.3}),
        ("snoo", {"period": Constant(h=4)}),
        ("gpa", {}),
        ("palsgd", {"period": Constant(h=2), "probability": 0.5, "start": 2}),
        ("slowmo", {"period": Constant(h=4), "base": {"name": "osgp", "staleness": 2}, "average": False}),
    ],
)
@pytest.mark.parametrize("stop", [3, 6])
def test_a_state_dict_continues_exactly(name, options, stop):
    whole, first, second = (Problem(name, CENTRES, START, **options) for _ in range(3))
    for _ in range(9):
        whole.step()
    for _ in range(stop):
        first.step()
    state, rows = first.sync.state_dict(), first.rows
    first.step()  # what was saved must not change with the one that saved it
    second.scatter(rows)
    second.sync.load_state_dict(state)
    for _ in range(9 - stop):
        second.step()
    assert np.array_equal(second.rows, whole.rows)

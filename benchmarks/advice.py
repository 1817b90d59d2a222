"""`sync.advise()` on networks shaped to a rate: the step that it foretells from another training, beside that step."""

import os
import tempfile
import time
from collections.abc import Mapping
from datetime import timedelta
from functools import partial

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

import resync
from benchmarks.harness import Benchmark, Case, Goal, Measure
from benchmarks.synchronisation import Machines

NETWORKS = {"100mbit": (1e8, 0.2, 0.06), "1gbit": (1e9, 0.1, 0.2)}
"""A rate in bits per second, and seconds that a message of all parameters takes at it, and the computing of a step."""
METHODS = {"H = 1": ("LocalSGD", 1, 2), "H = 4": ("LocalSGD", 4, 2), "gossip": ("SGP", 1, 1)}
"""The method, its H where it is measured, and its H in the training whose clocks foretell that."""
STEPS, SIZE, LIMIT = 12, 2, 120.0
MEASURED, FORETOLD = "measured", "foretold"


def benchmark(smallest: bool = False) -> Benchmark:
    """A group for each network and method; computing is a pause, so that the network is the slowest part."""
    machines = Machines()
    cases = [
        Case(of, partial(_measured, machines, rate, name, of), f"{rate}, {name}")
        for rate in (list(NETWORKS)[:1] if smallest else NETWORKS)
        for name in (["H = 4"] if smallest else METHODS)
        for of in (MEASURED, FORETOLD)
    ]
    return Benchmark(
        title="Advice on the length of rounds",
        minutes=5,
        measures={"step_time": Measure("ms", "lower")},
        cases=cases,
        base=MEASURED,
        code=["workers/engine", "workers/formulas", "library.py"],
        goals=[Goal(FORETOLD, 1.1, (MEASURED,))],
        notes=[f"{SIZE} processes, gloo; H = 1 and H = 4 foretold from H = 2, gossip from its own messages"],
        close=machines.close,
    )


def _measured(machines: Machines, rate: str, name: str, of: str) -> Mapping[str, object]:
    network = machines.network(SIZE, rate)
    assert network
    with tempfile.TemporaryDirectory() as folder:
        given = {
            "folder": folder, "interface": network.interface, "network": rate, "name": name, "foretold": of == FORETOLD,
        }  # fmt: skip
        reports = machines.of(None).run(
            "benchmarks.advice:train",
            [given | {"rank": rank} for rank in range(SIZE)],
            namespaces=network.namespaces,
            timeout=LIMIT,
        )
    return {"step_time": 1000 * float(np.mean([report.value for report in reports]))}


def train(rank: int, folder: str, interface: str, network: str, name: str, foretold: bool) -> float:
    """Seconds of a step: the mean after the first round, or as the advice after the other training has it."""
    os.environ["GLOO_SOCKET_IFNAME"] = interface
    store = dist.FileStore(f"{folder}/store", SIZE)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=SIZE, timeout=timedelta(seconds=LIMIT))
    rate, message, computing = NETWORKS[network]
    method, measured, other = METHODS[name]
    period = other if foretold else measured
    width = int((rate / 8 * message / 4) ** 0.5)
    model, gradient = nn.Linear(width, width, bias=False), torch.zeros(width, width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = {"period": period} if method == "LocalSGD" else {}
    sync = resync.attach(model, optimizer, getattr(resync, method)(**options))
    begin = 0.0
    for step in range(period + STEPS):
        if step == period:
            begin = time.perf_counter()
        model.weight.grad = gradient
        time.sleep(computing)
        optimizer.step()
    mean = (time.perf_counter() - begin) / STEPS
    if not foretold:
        return mean
    advice = sync.advise()
    return advice.computing + advice.message if name == "gossip" else advice.step(measured)

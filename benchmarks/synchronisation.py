"""The cost of synchronising: our methods, written-out ideals and peers, on the loopback and on shaped networks."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from benchmarks.harness import Benchmark, Case, Goal, Measure, Processes, Unavailable, peers
from benchmarks.synchronising.networks import Network, loopback, shaped

H = 8
BASE = "no communication"


@dataclass(frozen=True)
class Method:
    """A function of benchmarks.synchronising, and the least that it could send.

    `least` is in parameter vectors per step for a number of processes; `everywhere` says whether it is also measured on
    shaped networks; `every` is the number of steps in a round.
    """

    target: str
    least: Callable[[int], float]
    peer: str | None = None
    everywhere: bool = False
    every: int = 1


def _reduced(size: int) -> float:
    return 2 * (size - 1) / size


per_round = partial(Method, every=H, least=lambda size: _reduced(size) / H)
all_reduced, gossiped = partial(Method, least=_reduced), partial(Method, least=lambda size: 1.0)
METHODS = {
    BASE: Method("ideal:nothing", least=lambda size: 0.0, everywhere=True),
    "Local SGD, ideal": per_round("ideal:local_sgd"),
    "Local SGD (library)": per_round("ours:library_local_sgd", everywhere=True),
    "Local SGD (suite)": per_round("ours:suite_local_sgd"),
    "PeriodicModelAverager": per_round("ideal:periodic_averager"),
    "accelerate LocalSGD": per_round("theirs:accelerate_local_sgd", peer="accelerate"),
    "SlowMo (library)": per_round("ours:library_slowmo"),
    "SlowMo (suite)": per_round("ours:suite_slowmo"),
    "fairscale SlowMo": per_round("theirs:fairscale_slowmo", peer="fairscale"),
    "gossip, ideal": gossiped("ideal:gossip"),
    "SGP (library)": gossiped("ours:library_sgp", everywhere=True),
    "SGP (suite)": gossiped("ours:suite_sgp"),
    "D-PSGD (library)": gossiped("ours:library_dpsgd"),
    "D-PSGD (suite)": gossiped("ours:suite_dpsgd"),
    "decent-dp": gossiped("theirs:decent_dp", peer="decent-dp"),
    "OSGP (library)": gossiped("ours:library_osgp", everywhere=True),
    "OSGP (suite)": gossiped("ours:suite_osgp"),
    "all-reduce, ideal": all_reduced("ideal:all_reduce"),
    "all-reduce (library)": all_reduced("ours:library_all_reduce"),
    "all-reduce (suite)": all_reduced("ours:suite_all_reduce", everywhere=True),
    "torch DDP": all_reduced("ideal:ddp", everywhere=True),
}
SETTINGS = [("MLP", 2, None, 6), ("MLP", 4, None, 6), ("ResNet", 2, None, 4), ("ResNet", 4, None, 4),
            ("MLP", 4, "1gbit", 4), ("MLP", 2, "100mbit", 3)]  # fmt: skip
"""Models, numbers of processes, networks, and measured steps of methods that synchronise in every step."""


@dataclass
class Machines:
    """The processes by environment and the networks by setting, each made on first use."""

    processes: dict[str | None, Processes] = field(default_factory=dict)
    networks: dict[tuple[int, str | None], Network | None] = field(default_factory=dict)
    reasons: dict[tuple[int, str | None], str] = field(default_factory=dict)

    def of(self, peer: str | None) -> Processes:
        """What forks in our environment, or in that of a peer."""
        if peer not in self.processes:
            python = {"python": peers.python(peer)} if peer else {}
            modules = ["torch", "torch._dynamo", "benchmarks.synchronising.loop"]
            ours = ["benchmarks.synchronising.ours"]
            self.processes[peer] = Processes(**python, imports=modules + ([] if peer else ours))
        return self.processes[peer]

    def network(self, size: int, rate: str | None) -> Network | None:
        """The network of a setting; None for the loopback of the system, where none can be made."""
        key = size, rate
        if key not in self.networks and key not in self.reasons:
            self.close_networks()  # they share names
            try:
                self.networks[key] = shaped(size, rate) if rate else loopback(size)
            except Unavailable as reason:
                self.reasons[key] = str(reason)
        if key in self.reasons and rate:
            raise Unavailable(self.reasons[key])
        return self.networks.get(key)

    def close_networks(self) -> None:
        """Delete all networks."""
        for network in self.networks.values():
            if network:
                network.remove()
        self.networks.clear()

    def close(self) -> None:
        """End all processes, and delete all networks."""
        for each in self.processes.values():
            each.close()
        self.close_networks()


def measure(
    machines: Machines, method: Method, model: str, size: int, rate: str | None, steps: int
) -> Mapping[str, object]:
    """One round of one case: all its processes, with means over them."""
    network = machines.network(size, rate)
    processes = machines.of(method.peer)
    with tempfile.TemporaryDirectory() as folder:
        given = {
            "method": method.target, "model": model, "size": size, "folder": folder, "every": method.every,
            "interface": network.interface if network else None, "steps": method.every if method.every > 1 else steps,
        }  # fmt: skip
        reports = processes.run(
            "benchmarks.synchronising.loop:measure",
            [given | {"rank": rank} for rank in range(size)],
            namespaces=network.namespaces if network else (),
            timeout=90,
        )
    values = [report.value for report in reports]
    vector = values[0]["vector"]
    shared = size if network and rate is None else 1  # the loopback counts what all processes have sent
    sent = np.mean([value["sent"] for value in values]) / shared / vector
    least = method.least(size)
    return {
        "step_time": 1000 * float(np.mean([value["step"] for value in values])),
        "slowest_step": 1000 * float(np.percentile(np.concatenate([value["steps"] for value in values]), 95)),
        "processor_time": 1000 * float(np.mean([value["processor"] for value in values])),
        "memory": max(report.peak_bytes for report in reports) / vector,
        **({"sent_of_least": float(sent / least)} if network and least else {}),
    }


def benchmark(smallest: bool = False) -> Benchmark:
    """A group for each model, number of processes and network; at the smallest size without peers."""
    machines = Machines()
    cases = []
    for model, size, rate, steps in SETTINGS[: 1 if smallest else None]:
        group = f"{model}, {size} processes, {rate or 'loopback'}"
        for name, method in METHODS.items():
            if (rate is None or method.everywhere) and not (smallest and method.peer):
                cases.append(Case(name, partial(measure, machines, method, model, size, rate, steps), group))
    return Benchmark(
        title="A step of training with synchronisation",
        minutes=13,
        measures={
            "step_time": Measure("ms", "lower"),
            "slowest_step": Measure("ms, 95th percentile", "lower"),
            "processor_time": Measure("ms per process", "lower"),
            "memory": Measure("parameter vectors", "lower"),
            "sent_of_least": Measure("bytes sent / least possible", "lower"),
        },
        cases=cases,
        base=BASE,
        code=["workers/engine", "workers/sync", "library.py"],
        goals=list(_goals()),
        notes=[
            f"H = {H}; one thread per process, which keeps freed memory; gloo; step_time is a mean over all",
            "sent_of_least counts the kernel's bytes, with the headers of TCP, IP and Ethernet",
        ],
        close=machines.close,
    )


def _goals() -> list[Goal]:
    goals = []
    for form in ("library", "suite"):
        local_peers = ("PeriodicModelAverager", "accelerate LocalSGD")
        goals += [
            Goal(f"all-reduce ({form})", 1.0, ("torch DDP",)),
            Goal(f"Local SGD ({form})", 0.95, local_peers),
            Goal(f"Local SGD ({form})", 1.03, ("Local SGD, ideal",)),
            Goal(f"SGP ({form})", 0.95, ("decent-dp",)),
            Goal(f"SGP ({form})", 1.05, ("gossip, ideal",)),
            Goal(f"D-PSGD ({form})", 0.95, ("decent-dp",)),
            Goal(f"D-PSGD ({form})", 1.05, ("gossip, ideal",)),
            Goal(f"OSGP ({form})", 1.05, (f"SGP ({form})",), "processor_time"),
            Goal(f"SlowMo ({form})", 0.95, ("fairscale SlowMo",)),
        ]
    return goals

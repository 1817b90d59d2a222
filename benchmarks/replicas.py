"""Workers of two processes: a step of the library with FSDP2 inside, beside torch's own and averages written out."""

import tempfile
from collections.abc import Callable, Mapping
from functools import cache, partial

import numpy as np

from benchmarks.harness import Benchmark, Case, Goal, Measure, Processes, peers

MODULES = ["torch", "torch._dynamo", "torch.distributed.fsdp", "benchmarks.synchronising.loop"]
SIZE, H = 4, 8
BASE = "FSDP2 alone"
TORCHFT = "torchft_replicas"
METHODS = {
    BASE: ("sharded:alone", 1),
    "HSDP (torch)": ("sharded:hybrid", 1),
    "DDP of four (torch)": ("ideal:ddp", 1),
    "AllReduce": ("replicas:ours_all_reduce", 1),
    "AllReduce (torchft)": (f"{TORCHFT}:all_reduce", 1),
    "SGP": ("replicas:ours_sgp", 1),
    "Local SGD, written out": ("sharded:local_sgd", H),
    "Local SGD": ("replicas:ours_local_sgd", H),
    "Local SGD (torchft)": (f"{TORCHFT}:local_sgd", H),
    "DiLoCo": ("replicas:ours_diloco", H),
    "DiLoCo (torchft)": (f"{TORCHFT}:diloco", H),
}
SMALLEST = BASE, "SGP", "Local SGD", "DiLoCo"


def benchmark(smallest: bool = False) -> Benchmark:
    """One group, the MLP of `synchronisation` on two workers of two processes; torchft in an environment of its own."""
    made: list[Processes] = []
    names = SMALLEST if smallest else tuple(METHODS)

    @cache
    def of(peer: str | None) -> Processes:
        python = {"python": peers.python(peer)} if peer else {}
        made.append(Processes(**python, imports=MODULES))
        return made[-1]

    return Benchmark(
        title="Workers of two processes",
        minutes=4,
        measures={"step_time": Measure("ms", "lower"), "processor_time": Measure("ms per process", "lower")},
        cases=[Case(name, partial(_measured, of, *METHODS[name]), "MLP") for name in names],
        base=BASE,
        code=["workers/engine", "workers/sync", "library.py"],
        goals=[
            Goal("AllReduce", 1.0, ("HSDP (torch)", "AllReduce (torchft)")),
            Goal("Local SGD", 1.05, ("Local SGD, written out", "Local SGD (torchft)")),
            Goal("DiLoCo", 1.1, ("Local SGD, written out", "DiLoCo (torchft)")),
        ],
        notes=[f"2 x 2 processes, FSDP2 inside, H = {H}, one thread per process, gloo; means over whole rounds"],
        close=lambda: [each.close() for each in made],
    )


def _measured(of: Callable[[str | None], Processes], target: str, every: int) -> Mapping[str, object]:
    processes = of("torchft" if target.startswith(TORCHFT) else None)
    with tempfile.TemporaryDirectory() as folder:
        given = {
            "method": target, "model": "MLP", "size": SIZE, "folder": folder, "every": every, "interface": None,
            "steps": max(every, 6),
        }  # fmt: skip
        reports = processes.run(
            "benchmarks.synchronising.loop:measure", [given | {"rank": rank} for rank in range(SIZE)], timeout=120
        )
    values = [report.value for report in reports]
    return {
        "step_time": 1000 * float(np.mean([value["step"] for value in values])),
        "processor_time": 1000 * float(np.mean([value["processor"] for value in values])),
    }

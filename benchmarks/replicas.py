"""Workers of two processes: a step of the library with FSDP2 inside, beside torch's own and averages written out."""

import tempfile
from collections.abc import Mapping
from functools import partial

import numpy as np

from benchmarks.harness import Benchmark, Case, Goal, Measure, Processes

SIZE, H = 4, 8
BASE = "FSDP2 alone"
METHODS = {
    BASE: ("replicas:alone", 1),
    "HSDP (torch)": ("replicas:hybrid", 1),
    "DDP of four (torch)": ("ideal:ddp", 1),
    "AllReduce": ("replicas:ours_all_reduce", 1),
    "SGP": ("replicas:ours_sgp", 1),
    "Local SGD, written out": ("replicas:local_sgd", H),
    "Local SGD": ("replicas:ours_local_sgd", H),
    "DiLoCo": ("replicas:ours_diloco", H),
}


def benchmark() -> Benchmark:
    """One group, the MLP of `synchronisation` on two workers of two processes."""
    processes = Processes(imports=["torch", "torch._dynamo", "torch.distributed.fsdp", "benchmarks.synchronising.loop"])
    return Benchmark(
        title="Workers of two processes",
        minutes=3,
        measures={"step_time": Measure("ms", "lower"), "processor_time": Measure("ms per process", "lower")},
        cases=[Case(name, partial(_measured, processes, *how), "MLP") for name, how in METHODS.items()],
        base=BASE,
        goals=[
            Goal("AllReduce", 1.0, ("HSDP (torch)",)),
            Goal("Local SGD", 1.05, ("Local SGD, written out",)),
            Goal("DiLoCo", 1.1, ("Local SGD, written out",)),
        ],
        notes=[f"2 x 2 processes, FSDP2 inside, H = {H}, one thread per process, gloo; means over whole rounds"],
        close=processes.close,
    )


def _measured(processes: Processes, target: str, every: int) -> Mapping[str, object]:
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

"""What all benchmarks share: cases in rounds, processes, environments, results and figures."""

from benchmarks.harness.cases import Benchmark, Case, Goal, Measure, Unavailable
from benchmarks.harness.processes import Processes

__all__ = ["Benchmark", "Case", "Goal", "Measure", "Processes", "Unavailable"]

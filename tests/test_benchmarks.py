"""The harness of the benchmarks: rounds, ratios, goals, processes, results, figures."""

import socket
from dataclasses import replace

import pytest

from benchmarks.__main__ import load, names
from benchmarks.harness import Benchmark, Case, Goal, Measure, Processes, Unavailable
from benchmarks.harness import cases as harness
from benchmarks.harness import results as on_disk
from benchmarks.harness.environment import environment
from benchmarks.harness.processes import Failed

WORK = """
def square(number):
    return number * number

def grow(mebibytes):
    return len(bytearray(mebibytes << 20))

def fail():
    raise ValueError("no such thing")
"""


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("modules")
    (folder / "work.py").write_text(WORK)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", str(folder))
        running = Processes(imports=["json"])
    with running:
        yield running


def missing():
    raise Unavailable("could not be installed: no such package")


def benchmark(order):
    """`ours` takes 1, 2, 3 s in the three rounds and `theirs` twice as long; the file of another cannot be had."""

    def case(name, factor):
        def measure():
            order.append(name)
            return {"seconds": [factor * order.count(name)] * 2}

        return Case(name, measure)

    return Benchmark(
        title="Addition",
        minutes=0,
        measures={"seconds": Measure("s", "lower")},
        cases=[case("ours", 1), case("theirs", 2), Case("another", missing)],
        base="theirs",
        goals=[Goal("ours", at=1.0, beside=("theirs", "another")), Goal("theirs", at=3.0), Goal("another", at=1.0)],
    )


def test_rounds_ratios_and_goals_follow_from_what_was_measured():
    order = []
    found = harness.run(benchmark(order))
    assert order == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    ours, theirs, another = found["cases"]
    ratios = dict.fromkeys(("ratio", "ratio_low", "ratio_high"), 0.5)
    assert ours["numbers"]["seconds"] == {"median": 2, "p5": 1, "p95": 3, "n": 6} | ratios
    assert theirs["numbers"]["seconds"]["ratio"] == 1
    assert another["unavailable"] == "could not be installed: no such package"
    reached = [(goal["case"], goal["beside"], goal["reached"], goal["met"]) for goal in found["goals"]]
    assert reached == [("ours", "theirs", 0.5, True), ("theirs", None, 4, False), ("another", None, None, False)]


def test_a_goal_is_for_the_groups_that_have_its_cases():
    def case(name, group):
        return Case(name, lambda: {"seconds": [1.0]}, group)

    declared = replace(
        benchmark([]),
        cases=[case("ours", "here"), case("theirs", "here"), case("ours", "there")],
        goals=[Goal("ours", at=1.0, beside=("theirs",)), Goal("ours", at=2.0)],
    )
    groups = [goal["group"] for goal in harness.run(declared)["goals"]]
    assert groups == ["here", "here", "there"]


def test_a_result_names_neither_host_nor_folder_and_is_redrawn_from_its_json_alone(tmp_path):
    path = tmp_path / "addition.json"
    on_disk.write(path, {"environment": environment()} | harness.run(benchmark([])))
    assert not [name for name in (socket.gethostname(), str(on_disk.FOLDER.parent)) if name in path.read_text()]
    first = path.with_suffix(".svg").read_bytes()
    path.with_suffix(".svg").unlink()
    on_disk.redraw(path)
    assert path.with_suffix(".svg").read_bytes() == first


def test_forked_processes_report_results_processor_time_and_peak_memory(processes):
    reports = processes.run("work:square", [{"number": number} for number in range(3)])
    assert [report.value for report in reports] == [0, 1, 4]
    [grown] = processes.run("work:grow", [{"mebibytes": 64}])
    assert 64 << 20 <= grown.peak_bytes < 96 << 20
    assert grown.processor_seconds > 0


def test_an_error_in_a_process_is_told_and_stands_in_the_results(processes):
    with pytest.raises(Failed, match=r"process 0: .*\n(.*\n)*ValueError: no such thing"):
        processes.run("work:fail", [{}, {}])
    failing = Case("failing", lambda: {"seconds": len(processes.run("work:fail", [{}]))})
    found = harness.run(Benchmark("Failure", 0, {"seconds": Measure("s", "lower")}, [failing], "failing"))
    assert found["cases"][0]["unavailable"] == "failed: ValueError: no such thing"


def test_all_benchmarks_are_found_and_fit_into_forty_minutes():
    declared = {name: load(name).benchmark() for name in names()}
    assert {"augmentation", "warm_start"} <= declared.keys()
    assert sum(each.minutes for each in declared.values()) <= 40

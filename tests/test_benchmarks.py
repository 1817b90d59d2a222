"""The harness of the benchmarks: rounds, ratios, goals, processes, results, figures."""

import json
import re
import socket
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks import __main__ as command
from benchmarks import small_nets
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
        code=["formulas"],
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
    found = harness.run(Benchmark("Failure", 0, {"seconds": Measure("s", "lower")}, [failing], "failing", []))
    assert found["cases"][0]["unavailable"] == "failed: ValueError: no such thing"


def test_a_result_says_by_how_many_commits_what_it_measures_has_changed(tmp_path):
    def git(*arguments):
        given = ["-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path)]
        return subprocess.run(["git", *given, *arguments], check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    commits = []
    for name in ("sync", "data", "sync"):
        (tmp_path / "src/resync" / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "src/resync" / name / "a.py").write_text(str(len(commits)))
        git("add", ".")
        git("commit", "-qm", name)
        commits.append(git("rev-parse", "HEAD"))

    def age(commit, dirty=False):
        environment = {"day": "2026-11-23", "git": {"commit": commit, "dirty": dirty}}
        return on_disk.age("a", environment, ["sync"], tmp_path)

    assert age(commits[0], True).endswith(" with uncommitted changes; 1 commits since have changed sync")
    assert age(commits[2]).endswith(f"commit {commits[2][:8]}; 0 commits since have changed sync")
    assert age("0" * 40).endswith("that commit is not here")


def test_a_benchmark_that_fails_is_told_and_the_next_one_runs(tmp_path, monkeypatch, capsys):
    def declared(smallest):
        return replace(benchmark([]), warm_up=failing if smallest is None else lambda: None)

    def failing():
        raise ValueError("no such photos")

    made = {"bad": lambda smallest=False: declared(None), "good": declared}
    monkeypatch.setattr(command, "names", lambda: sorted(made))
    monkeypatch.setattr(command, "load", lambda name: SimpleNamespace(benchmark=made[name]))
    monkeypatch.setattr("sys.argv", ["benchmarks", "--smallest", str(tmp_path)])
    monkeypatch.setattr(command, "ages", lambda folder: [])
    with pytest.raises(SystemExit, match="failed: bad"):
        command.main()
    assert "no such photos" in capsys.readouterr().err
    assert [path.name for path in sorted(tmp_path.glob("*.json"))] == ["good.json"]


class Operations(TorchDispatchMode):
    """Counts torch's operations."""

    number = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.number += 1
        return operation(*args, **(kwargs or {}))


def test_a_step_of_a_small_net_has_a_quarter_more_operations_than_the_loop_written_out():
    """What the benchmark times, without a clock."""
    found = {}
    for form in (small_nets.ours, small_nets.theirs):
        steps = form("MLP 64")
        next(steps)
        with Operations() as operations:
            for _ in range(64):
                next(steps)
        found[form] = operations.number / 64
    assert found[small_nets.ours] < 1.25 * found[small_nets.theirs]


ABSENT = re.compile(r"FFCV is not installed|No module named .ffcv|has no LocalTensor")


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_every_benchmark_runs_at_its_smallest_size(name, tmp_path):
    arguments = ["--only", name, "--smallest", str(tmp_path)]
    subprocess.run([sys.executable, "-m", "benchmarks", *arguments], cwd=on_disk.FOLDER.parents[1], check=True)
    found = json.loads((tmp_path / f"{name}.json").read_text())
    reasons = {case["name"]: case["unavailable"] for case in found["cases"] if "unavailable" in case}
    assert all(ABSENT.match(reason) for reason in reasons.values()), reasons
    assert all(case["numbers"] or case["name"] in reasons for case in found["cases"])
    assert found["environment"]["git"]["commit"]
    assert (tmp_path / f"{name}.svg").exists()


def test_all_benchmarks_are_found_and_fit_into_forty_minutes():
    declared = {name: load(name).benchmark() for name in names()}
    assert {"augmentation", "warm_start"} <= declared.keys()
    assert sum(each.minutes for each in declared.values()) <= 40

"""The view of a workflow: what Snakemake logs, as a bar on a terminal and as lines elsewhere."""

import io
import logging
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from machine import until
from rich.console import Console
from snakemake.settings.enums import Quietness
from snakemake_interface_logger_plugins.common import LogEvent

from resync.papers.paper import load_suite
from resync.runs.results.status import StatusLine, progress
from resync.runs.run import Run
from resync.tools.progress import Board, Job, View, colored
from resync.tools.progress.board import place_of
from snakemake_logger_plugin_resync import LogHandler, explained

ROOT = Path(__file__).parents[1]
METRICS = "step,epoch,lr,h,val_loss,val_top1\n20,1.0,0.1,1,0.5,81.25\n40,2.0,0.1,1,0.4,9"
STEPS = "step,epoch,step_data_seconds,step_compute_seconds,step_communication_seconds\n40,2.0,0.1,0.3,0.1\n"


@pytest.fixture(scope="module")
def run() -> Run:
    return load_suite(ROOT / "paper_configs", papers=["qsr"]).runs("qsr", "smoke", "two_processes", "h4")[0]


@pytest.fixture
def folder(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the run, in the middle of its training."""
    monkeypatch.chdir(tmp_path)
    folder = Path("results") / run.directory
    folder.mkdir(parents=True)
    (folder / "run.yaml").write_text(run.to_yaml())
    (folder / "metrics.csv.partial").write_text(METRICS)
    (folder / "steps.csv.partial").write_text(STEPS)
    return folder


def test_a_row_that_is_being_written_is_no_value(run: Run, folder: Path):
    found = progress(run, Path("results"))
    assert (found.metric, found.value, found.step) == ("val_top1", 81.25, 40)


def test_a_board_counts_and_foretells(run: Run, folder: Path):
    now = iter(range(0, 1000, 10))
    board = Board(clock=lambda: float(next(now)))
    board.begins(10)
    for number in range(5):
        board.starts(Job(number, "figure", f"figures/{number}.pdf"))
        board.ends(number)
    board.starts(Job(5, "report", "report.html"))
    board.starts(Job(6, "train", f"{folder}/metrics.csv", folder=folder))
    assert board.totals() == "5 of 10 jobs, 0:00:10, about 0:00:20 left"
    [(train, found), (report, nothing)] = board.places()
    assert (train.name, report.name, nothing) == (run.id, "report report.html", None)
    assert place_of(train, found) == f"{run.id} step 40/{run.total_steps}, val_top1 81.25"


def test_the_reason_of_a_failure_is_that_of_its_attempt(run: Run, folder: Path):
    """Snakemake tells of a failure when the next attempt may have begun to write."""
    board = Board()
    job = Job(1, "train", "", folder / "train.log", folder)
    parts = {
        "resync: error: no data": "no data",
        f"{run.id}: epoch 0 step 3 train_loss 2.3": "killed, or ended without a message",
        "resync: error: rank 1 ended with exit code 1\nresync: a/b/c/seed0: failed: out of memory": "out of memory",
        "resync: error: no file\nresync: error: rank 1 ended with exit code 2": "no file",
        f"{run.id}: SIGTERM: stops after step 3 of 9 with a checkpoint\n": "interrupted: the next start continues",
        "Traceback (most recent call last):\n  File\nKeyError: 7": "KeyError: 7",
        f"resync: error: of the first start\nresync: {run.id}: exit code 1, restart 1 of 1\nresync: error: no file": (
            "no file"
        ),
    }
    for number, text in enumerate(parts, start=1):
        (folder / f"train.{number}.log").write_text(text)
    for number, reason in enumerate(parts.values(), start=1):
        board.starts(job)
        assert board.fails(1) == f"failed: {run.id}: {reason} (log: {folder}/train.{number}.log)"
    assert list(board.failed) == [1]
    board.starts(job)
    board.ends(1)
    assert (board.failed, board.done) == ({}, 1)


def record(event: LogEvent | None = None, text: str = "", level: int = logging.INFO, **fields) -> logging.LogRecord:
    made = logging.LogRecord("snakemake", level, "", 0, text, None, None)
    made.__dict__.update(fields, event=event)
    return made


def handler(**changes) -> LogHandler:
    settings = {"dryrun": False, "verbose": False, "debug_dag": False, "nocolor": True, "quiet": {Quietness.HOST}}
    settings |= {"stdout": False, "show_failed_logs": True, "printshellcmds": False}
    return LogHandler(SimpleNamespace(**settings | changes), None)


RECORDS = [
    record(LogEvent.WORKFLOW_STARTED, "the host"),
    record(text="Building DAG of jobs..."),
    record(LogEvent.RUN_INFO, "Job stats:", stats={"train": 1, "total": 2}),
    record(text="Select jobs to execute..."),
    record(LogEvent.JOB_INFO, jobid=3, rule_name="audit_paper", output=["results/a.json"], log=["a.log"]),
    record(LogEvent.SHELLCMD, "python -m resync audit"),
    record(LogEvent.ERROR, "RuleException: CalledProcessError in file x", logging.ERROR),
    record(LogEvent.JOB_ERROR, "Error in rule", logging.ERROR, jobid=3),
    record(text="Trying to restart job 3."),
    record(LogEvent.JOB_INFO, jobid=3, rule_name="audit_paper", output=["results/a.json"], log=["a.log"]),
    record(LogEvent.JOB_FINISHED, "Finished jobid: 3", job_id=3),
    record(text="Terminating processes on user request, this might take some time."),
]


def test_snakemakes_messages_become_few_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("a.log").write_text("Traceback\nValueError: no such paper\n")
    shown = handler()
    for each in RECORDS:
        shown.emit(each)
    shown.close()
    shown.close()
    lines = capsys.readouterr().err.splitlines()
    assert lines[:-1] == [
        "Building DAG of jobs...",
        "failed: audit_paper results/a.json: ValueError: no such paper (log: a.log)",
        "tried again: audit_paper results/a.json",
        "Terminating processes on user request, this might take some time.",
    ]
    assert lines[-1].startswith("1 of 2 jobs, 0:00:0")


def test_a_dry_run_and_quiet_all_are_as_without_the_plug_in(capsys):
    dry, silent = handler(dryrun=True, stdout=True), handler(quiet={Quietness.ALL})
    for each in RECORDS[1:3]:
        dry.emit(each)
        silent.emit(each)
    assert capsys.readouterr() == ("Building DAG of jobs...\nJob stats:\n", "")


def test_a_dry_run_ends_with_the_data_that_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setenv("RESYNC_DATA", str(tmp_path))
    monkeypatch.delenv("RESYNC_PREPARED", raising=False)
    (tmp_path / "MNIST/raw").mkdir(parents=True)
    dry = handler(dryrun=True, stdout=True, quiet={Quietness.RULES})
    for name in ("shakespeare_char", "mnist_14"):
        dry.emit(record(LogEvent.JOB_INFO, rule_name="prepare", wildcards={"dataset": name, "format": ""}))
    dry.close()
    dry.close()
    total, line = capsys.readouterr().out.splitlines()
    assert total == "would train 0 runs and draw 0 figures and tables: 2 jobs"
    assert line.startswith("resync: data shakespeare_char missing: not prepared in ")


def test_a_dry_run_says_how_long_its_runs_take_and_by_what_this_is_known(monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.chdir(ROOT)
    dry = handler(dryrun=True, stdout=True, quiet={Quietness.RULES})
    for seed in ("0", "1"):
        names = {"scale": "mini", "paper": "qsr", "experiment": "fitted", "series": "parallel", "seed": seed}
        dry.emit(record(LogEvent.JOB_INFO, rule_name="train", wildcards=names))
    dry.close()
    total, line = capsys.readouterr().out.splitlines()
    assert total == "would train 2 runs and draw 0 figures and tables: 2 jobs"
    assert re.fullmatch(r"about [\d.]+ h of runs one after another \(from archive\); they keep [\d.]+ MB on disk", line)


def test_a_terminal_has_a_bar_and_its_cursor_back(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TERM", "xterm")  # a dumb terminal gets no bar
    board, screen = Board(), io.StringIO()
    board.begins(2)
    board.starts(Job(6, "train", f"{folder}/metrics.csv", folder=folder))
    monkeypatch.setattr(
        "resync.tools.progress.view.Console", lambda **given: Console(force_terminal=True, width=120, **given)
    )
    monkeypatch.setattr("resync.tools.progress.view.PICTURE_SECONDS", 0.001)
    view = View(board, screen)
    view.start()
    until(lambda: "val_top1 81.25" in screen.getvalue())
    view.say("failed: something", "red")
    view.close()
    drawn = screen.getvalue()
    assert "0 of 2 jobs" in drawn
    assert f"step 40/{run.total_steps}" in drawn
    assert drawn.rindex("\x1b[?25h") > drawn.rindex("\x1b[?25l")
    assert drawn.endswith("0:00:00\x1b[0m\n")


def test_a_target_that_is_not_made_is_one_line_with_the_most_similar_name(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    said = explained("MissingRuleException:\nNo rule to produce qrs (if you use input functions ...).")
    assert said.startswith("resync: error: qrs: target: found 'qrs', allowed: ")
    assert said.endswith("did you mean 'qsr'?")

    absent = (
        "InputFunctionException in rule table in file x, line 33:\nError:\n  ConfigError: qsr t has no runs\nWildcards:"
    )
    assert explained(absent) == "resync: error: qsr t has no runs"
    assert explained("anything else") == "anything else"


def test_the_picture_of_status_has_the_total_first_and_then_what_runs():
    """A terminal cuts off the rest."""
    states = ("finished", "failed", "not run", "running", "finished")
    lines = [StatusLine((f"series{number}", state), state) for number, state in enumerate(states)]
    screen = io.StringIO()
    Console(file=screen, width=60).print(colored(("series", "state"), lines, "smoke scale, 5 runs"))
    shown = [line.split() for line in screen.getvalue().splitlines()]
    assert shown[0] == ["smoke", "scale,", "5", "runs"]
    assert [words[0] for words in shown[2:5]] == ["series3", "series1", "series2"]
    assert shown[5] == ["2", "more", "have", "finished"]

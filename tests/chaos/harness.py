"""Kills processes of runs at random moments, starts the same command again, and compares what comes out.

A trial takes an algorithm, a way to start it and some kills. Each kill names a victim and a moment of the run; the next
start has the next one, and the last start is left alone and must succeed. Then the results are those of a run of the
same configuration to which nothing happened: the bits of its parameters and every column that no clock makes. What
is under its final name is also compared after every kill, when the run has not continued yet.
"""

import csv
import json
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import cycle
from pathlib import Path
from typing import Any

import psutil
import torch
from launched import checkpoints
from moments import TRAINING, Control, Moment
from runs import BASE, VARIANTS
from starts import KINDS, Hung, Processes, Start, wait

from resync.base.text_tables import aligned

EVERY = 9
"""Steps from one checkpoint to the next, in the middle of rounds and epochs."""
ASYNCHRONOUS = "adpsgd_asynchronous"
RUNS = VARIANTS | {ASYNCHRONOUS: {"workers": 2, "sync": {"name": "adpsgd", "asynchronous": True}}}
_MOSTLY = ("launch", "launch", "warm", "launch", "snakemake", "launch")
WAYS = (*_MOSTLY, "make", *_MOSTLY, "torchrun")
FIRST_VICTIMS = {
    "warm": ("warm server", "warm fork"), "snakemake": ("Snakemake", "warm fork"), "make": ("resync run",),
}  # fmt: skip
"""Whom the first kill of a trial hits, in turn, so that few trials hit each."""
SIGNALS = ("SIGKILL", "SIGKILL", "SIGTERM")
"""Of which the signal of a kill is drawn; at SIGTERM a run may also stop with a checkpoint, or end."""
KILLS_OF_A_TRIAL = 3


class Defect(AssertionError):
    """A run that did not survive."""


@dataclass
class Kill:
    """One kill, as planned and as it came."""

    trial: int
    variant: str
    way: str
    victim: str
    signal: str
    moment: Moment
    what: str = ""
    step: int = 0
    at: float = 0.0
    lost_steps: int | None = None
    """Steps that were taken again; None where the next start was killed before it took one."""
    seconds_to_continue: float | None = None
    """From the kill to the first step after it, or to the end of a run that had none left."""

    def as_text(self) -> str:
        """What was killed where, and what that cost, in one line."""
        place = f"{self.victim} gets {self.signal} at {self.moment.phase} {self.moment.number} of {self.moment.who}, "
        place += f"step {self.step} ({self.what})" if self.what else f"step {self.step}"
        if self.seconds_to_continue is None:
            return place
        return f"{place}: {self.lost_steps} steps lost, {self.seconds_to_continue:.1f} s to continue"


@dataclass
class Report:
    """All kills, and what the runs did."""

    seed: int
    kills: list[Kill] = field(default_factory=list)
    trials: int = 0
    recovered: int = 0
    equal: int = 0
    """Runs that ended with the bits of the undisturbed one: all that recovered, asynchronous AD-PSGD apart."""
    resumes: int = 0
    defects: list[str] = field(default_factory=list)
    seconds: float = 0.0
    complete: bool = False
    """Whether there were as many kills as were asked for."""

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    def as_text(self) -> str:
        """One row for each victim and signal, and lines of totals."""
        header = ["victim", "signal", "kills", "lost steps", "at most", "seconds to continue", "at most"]
        of: dict[tuple[str, str], list[Kill]] = {}
        for kill in sorted(self.kills, key=lambda kill: (kill.victim, kill.signal)):
            of.setdefault((kill.victim, kill.signal), []).append(kill)
        rows = [[*names, *_numbers(kills)] for names, kills in (of | {("all", ""): self.kills}).items()]
        table = "\n".join(aligned([header, *rows]))
        phases = Counter(kill.moment.phase for kill in self.kills)
        algorithms = Counter(algorithm_of(kill.variant) for kill in self.kills)
        variants = {kill.variant for kill in self.kills}
        return (
            f"{table}\n\n"
            f"moments: {_counts(phases)}\n"
            f"{len(algorithms)} algorithms: {_counts(algorithms)}\n"
            f"{len(self.kills)} kills in {self.trials} runs of {len(variants)} variants, seed {self.seed}: "
            f"{self.recovered} runs recovered, {self.equal} of them with equal bits, "
            f"{self.resumes} continued from a checkpoint, "
            f"{len(self.defects)} defects, {self.seconds:.0f} s{'' if self.complete else ', interrupted'}\n"
            + "".join(f"DEFECT {each}\n" for each in self.defects)
        )


def _counts(found: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in found.most_common())


def _numbers(kills: list[Kill]) -> list[str]:
    lost = [kill.lost_steps for kill in kills if kill.lost_steps is not None]
    times = [kill.seconds_to_continue for kill in kills if kill.seconds_to_continue is not None]
    shown = [f"{sum(each) / len(each):.1f}" if each else "-" for each in (lost, times)]
    largest = [f"{max(lost)}" if lost else "-", f"{max(times):.1f}" if times else "-"]
    return [str(len(kills)), shown[0], largest[0], shown[1], largest[1]]


def algorithm_of(variant: str) -> str:
    """The algorithm that a variant is of; asynchronous AD-PSGD, whose bits differ, is one of its own."""
    return ASYNCHRONOUS if variant == ASYNCHRONOUS else RUNS[variant].get("sync", BASE["sync"])["name"]


def settings(variant: str) -> dict[str, Any]:
    """The configuration of a variant: 70 steps on two processes, in parts of a second."""
    changes = RUNS[variant]
    evaluation = changes.get("evaluation", {})
    often = {} if "every_rounds" in evaluation else {"every_epochs": 5}
    return BASE | changes | {
        "processes": 2,
        "epochs": 10,
        "evaluation": evaluation | often,
        "checkpoint": {"every_steps": EVERY, "every_rounds": None},
        "log": {"every_steps": 4, "wandb": "disabled"},
    }  # fmt: skip


class Harness:
    """Trials in a folder of their own until there are enough kills; what comes out is printed as it goes."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.began = time.monotonic()
        self.processes = Processes()
        self.draw = random.Random(seed)
        self.report = Report(seed)
        self.references: dict[str, Reference] = {}
        self.interrupted = False

    def interrupt(self, number: int, frame: object) -> None:
        """A handler of signals that ends the trials, also where Python drops the exception, as in a hook of os.fork."""
        self.interrupted = True
        raise KeyboardInterrupt

    def run(self, kills: int) -> Report:
        """Trials with altogether so many kills, or one trial more than that; every algorithm comes up if they suffice.

        Ctrl-C ends the trials early.
        """
        of = self._algorithms()
        with self.processes.ended(), suppress(KeyboardInterrupt):
            for trial, (variant, way) in enumerate(zip(self._variants(of), cycle(WAYS), strict=False)):
                left = kills - len(self.report.kills)
                if left <= 0 or self.interrupted:
                    self.report.complete = left <= 0
                    break
                self._try(trial, variant, way, max(1, left - max(0, len(of) - trial - 1)))
        self.report.seconds = time.monotonic() - self.began
        return self.report

    @staticmethod
    def _algorithms() -> dict[str, list[str]]:
        """The variants of each algorithm."""
        of: dict[str, list[str]] = {}
        for name in RUNS:
            of.setdefault(algorithm_of(name), []).append(name)
        return of

    def _variants(self, of: dict[str, list[str]]) -> Iterator[str]:
        """Algorithm after algorithm, with variants of each in an order that is drawn."""
        orders = [cycle(self.draw.sample(names, len(names))) for names in of.values()]
        self.draw.shuffle(orders)
        while True:
            for order in orders:
                yield next(order)

    def _try(self, number: int, variant: str, way: str, kills: int) -> None:
        folder = self.folder / f"trial{number}"
        self.report.trials += 1
        try:
            if variant not in self.references:
                self.references[variant] = Reference(self.processes, self.folder / variant, variant)
            trial = Trial(number, variant, way, KINDS[way](self.processes, folder, settings(variant)))
            count = min(kills, self.draw.randint(1, KILLS_OF_A_TRIAL))
            plan = self.references[variant].draw(self.draw, trial, count)
            try:
                trial.run(plan, self.references[variant])
            finally:
                trial.start.close()
                self.report.kills += trial.done
                for kill in trial.done:
                    print(f"trial {number}, {variant} by {way}: {kill.as_text()}")
            self.report.recovered += bool(trial.done)
            self.report.equal += bool(trial.done) and variant != ASYNCHRONOUS
            self.report.resumes += len(trial.results(trial.start.out)["resumed_from"])
        except (Defect, Hung) as defect:
            self.report.defects.append(f"trial {number}, {variant} by {way}: {defect}")
            print(f"DEFECT {self.report.defects[-1]}")
            for each in self.processes.others():
                with suppress(psutil.NoSuchProcess):
                    each.kill()
        report = self.report
        print(f"{len(report.kills)} kills, {report.recovered} of {report.trials} runs recovered, "
              f"{len(report.defects)} defects, {time.monotonic() - self.began:.0f} s", flush=True)  # fmt: skip


class Reference:
    """The run of a variant to which nothing happened, and the moments that it came to."""

    def __init__(self, processes: Processes, folder: Path, variant: str) -> None:
        start = Start(processes, folder, settings(variant))
        control = Control(folder / "control")
        control.choose(None)
        start.start(control)
        if wait(lambda: processes.code(start.command) is not None, "the end") and processes.code(start.command):
            raise Defect(f"the undisturbed run failed: {_last_lines(start.log)}")
        self.out = start.out
        self.moments: dict[str, list[Moment]] = {}
        for entry in control.journal():
            self.moments.setdefault(entry.moment.phase, []).append(entry.moment)

    @cached_property
    def tables(self) -> dict[str, list[dict[str, str]]]:
        """What no clock makes of metrics.csv and steps.csv."""
        return {name: table(self.out / name) for name in ("metrics.csv", "steps.csv")}

    def draw(self, source: random.Random, trial: "Trial", count: int) -> list[Kill]:
        """Kills of a trial: a victim, and a moment of a phase, each as likely as any other."""
        plan = []
        for index in range(count):
            victim = source.choice(trial.start.victims)
            if not index and (first := FIRST_VICTIMS.get(trial.way)):
                victim = first[trial.number // len(WAYS) % len(first)]
            at_a_rank = {
                phase: [each for each in found if each.who != "launcher" or "rank" not in victim]
                for phase, found in self.moments.items()
            }
            phase = source.choice(sorted(phase for phase, found in at_a_rank.items() if found))
            moment, number = source.choice(at_a_rank[phase]), source.choice(SIGNALS)
            plan.append(Kill(trial.number, trial.variant, trial.way, victim, number, moment))
        return plan

    def compare(self, out: Path, variant: str, whole: bool) -> None:
        """Raise Defect unless the results in a folder, or those that are there, are the ones of this run."""
        for name, expected in self.tables.items():
            if (whole or (out / name).exists()) and not _equal(table(out / name), expected, variant):
                raise Defect(f"{name} differs")
        if whole or (out / "model.pt").exists():
            ours, reference = (torch.load(each / "model.pt", weights_only=True) for each in (out, self.out))
            if variant != ASYNCHRONOUS and not all(map(torch.equal, ours.values(), reference.values())):
                raise Defect("model.pt differs")
        if whole or (out / "summary.json").exists():
            ours, reference = Trial.results(out), Trial.results(self.out)
            names = ["config_hash", "status", "steps", "rounds"]
            if variant != ASYNCHRONOUS:
                names += ["parameters_sha256", "bytes_sent", "volume_percent", "final", "best"]
            for name in names:
                if ours[name] != reference[name]:
                    raise Defect(f"{name} is {ours[name]}, undisturbed {reference[name]}")


@dataclass
class Trial:
    """One run and its kills."""

    number: int
    variant: str
    way: str
    start: Start
    done: list[Kill] = field(default_factory=list)
    controls: list[Control] = field(default_factory=list)

    def run(self, plan: list[Kill], reference: Reference) -> None:
        """Start the run until it ends well, each time with a kill as long as there are any. Raises Defect."""
        for kill in [*plan, None]:
            if (code := self._attempt(kill)) == 0:
                break
            if kill is None:
                raise Defect(f"does not go on, exit code {code}: {_last_lines(self.start.log)}")
            if kill not in self.done:
                raise Defect(f"failed before it was killed: {_last_lines(self.start.log)}")
            if not self._others():
                reference.compare(self.start.out, self.variant, whole=False)
        wait(lambda: not self._others(), f"the end of {', '.join(map(_described, self._others()))}")
        reference.compare(self.start.out, self.variant, whole=True)
        self._check_leftovers()
        self._measure()

    def _attempt(self, kill: Kill | None) -> int:
        """The exit code of one start."""
        start, processes = self.start, self.start.processes
        start.settle()
        control = Control(start.folder / f"control{len(self.controls)}")
        control.choose(kill.moment if kill else None)
        self.controls.append(control)
        start.start(control)
        wait(lambda: control.reached.exists() or processes.code(start.command) is not None, "the end or the kill")
        if kill and control.reached.exists() and processes.code(start.command) is None:
            victims = wait(lambda: start.numbers(kill.victim, control), f"the start of {kill.victim}")
            entry = next(each for each in control.journal() if each.moment == kill.moment)
            kill.what, kill.step, kill.at = entry.what, entry.step, time.time()
            for pid in victims:
                with suppress(ProcessLookupError):  # it has just ended
                    os.kill(pid, signal.Signals[kill.signal])
            self.done.append(kill)
            control.released.touch()
        wait(lambda: processes.code(start.command) is not None, "the end of the command")
        code = processes.code(start.command)
        assert code is not None
        return code

    def _others(self) -> list[psutil.Process]:
        return self.start.processes.others(*self.start.persistent())

    def _check_leftovers(self) -> None:
        out = self.start.out
        allowed = {"checkpoint", "model.pt", "metrics.csv", "steps.csv", "summary.json", "run.lock"}
        left = {each.name for each in out.iterdir() if not each.name.endswith((".log", ".yaml", ".hash"))} - allowed
        complete = [each.name for each in checkpoints(out)]
        if left or sorted(each.name for each in (out / "checkpoint").iterdir()) != complete or len(complete) != 2:
            raise Defect(f"leaves {sorted(left)}, {sorted(each.name for each in (out / 'checkpoint').iterdir())}")
        if self.variant == ASYNCHRONOUS:
            parts = [torch.load(file, weights_only=True)["states"] for file in sorted((out / "checkpoint").glob(
                f"{complete[-1]}/workers*.pt"))]  # fmt: skip
            first, second = (int(state["sync"]["averages"]) for part in parts for state in part)
            if first != second or first == 0:
                raise Defect(f"worker 0 has {first} averages, worker 1 {second}")

    def _measure(self) -> None:
        """Fill in what the kills cost, from the steps of rank 0."""
        steps = [
            (entry.time, entry.step) for control in self.controls for entry in control.journal()
            if entry.moment.who == "rank 0" and entry.moment.phase == TRAINING and entry.step
        ]  # fmt: skip
        ends = [*(kill.at for kill in self.done[1:]), float("inf")]
        for kill, until in zip(self.done, ends, strict=False):  # without a kill there is one end more
            before = max((step for at, step in steps if at <= kill.at), default=0)
            after = [(at, step) for at, step in steps if kill.at < at <= until]
            if after:
                kill.seconds_to_continue = after[0][0] - kill.at
                kill.lost_steps = max(0, before + 1 - min(step for _, step in after))
            elif until == float("inf"):
                summary = self.results(self.start.out)
                began, ended = (datetime.fromisoformat(text).timestamp()
                                for text in (summary["jobs"][-1]["started"], summary["ended"]))  # fmt: skip
                # A job that has no warm process any more writes no journal.
                unseen = kill.victim == "warm server" and began > kill.at
                resumed = max(summary["resumed_from"], default=0) if unseen else before
                kill.seconds_to_continue, kill.lost_steps = max(0.0, ended - kill.at), max(0, before - resumed)
            if kill.lost_steps and kill.lost_steps > EVERY and self.variant != ASYNCHRONOUS:
                raise Defect(f"lost {kill.lost_steps} steps with a checkpoint in every {EVERY}: {kill}")

    @staticmethod
    def results(out: Path) -> dict[str, Any]:
        return dict(json.loads((out / "summary.json").read_text()))


def table(file: Path) -> list[dict[str, str]]:
    """The rows of a table without the columns that a clock makes."""
    with file.open(newline="") as lines:
        return [{name: value for name, value in row.items() if "seconds" not in name} for row in csv.DictReader(lines)]


def _equal(ours: list[dict[str, str]], reference: list[dict[str, str]], variant: str) -> bool:
    if variant != ASYNCHRONOUS:
        return ours == reference
    return [row["step"] for row in ours] == [row["step"] for row in reference]


def _described(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return f"{process.pid} ({' '.join(process.cmdline())[-80:]})"
    return f"{process.pid}"


def _last_lines(log: Path) -> str:
    lines = [line for line in log.read_text().splitlines() if re.search(r"rror|Lock|exit code", line)]
    return f"{log}: " + " | ".join(lines[-3:])

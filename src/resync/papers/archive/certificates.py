"""Certificates: of an experiment of an archive one run, trained again from a commit, which ended with the same bits.

They stand for the runs of the experiment that were trained in a tree with uncommitted changes, which nobody can get.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from resync.base.errors import UserError
from resync.base.files import read_json, write_text
from resync.papers.archive.unpack import unpack
from resync.papers.paper import Suite
from resync.runs.results.errors import ResultsError
from resync.runs.results.runs import RunState, state_of
from resync.runs.results.summary import NAME, commits, has_results, read_summary, values_sha256
from resync.runs.run import Run

CERTIFICATES = "certificates.json"

Certificates = dict[str, dict[str, Any]]
"""By `paper/experiment`: run, configuration hash, SHA-256 of parameters and values, commit, processor and date."""
Train = Callable[[Run, Path], None]
"""Trains a run in a folder of results."""


def read(archive: Path, scale: str) -> Certificates:
    """The certificates of a scale of an archive; none without the file."""
    file = archive / scale / CERTIFICATES
    return read_json(file) if file.exists() else {}


def certify(suite: Suite, scale: str, archive: Path, into: Path, train: Train | None = None) -> Iterator[str]:
    """Train the cheapest run of each experiment that needs a certificate again, in the folder `into`; say how it went.

    The certificates are written at the end, or at an interruption: not before, so that the clone has no changes. Called
    again, it goes on: runs that ended in `into` are not trained again. Raises UserError unless they are of a commit.
    """
    certificates = read(archive, scale)
    try:
        with TemporaryDirectory() as folder:
            unpack(archive, scale, Path(folder))
            for name, before in _cheapest(suite, scale, Path(folder)).items():
                if not _stands_for(certificates.get(name), before):
                    _retrain(suite, before.run, into, train or _launch)
                    unlike = _unlike(before, into, Path(folder))
                    if not unlike:
                        certificates[name] = _certificate(into / before.run.directory)
                    yield f"{before.run.id}: {f'differs from the archive in {unlike}' if unlike else 'the same bits'}"
    finally:
        if certificates:
            write_text(archive / scale / CERTIFICATES, json.dumps(dict(sorted(certificates.items())), indent=2) + "\n")


def _certificate(directory: Path) -> dict[str, Any]:
    """Of a run that was trained again. Raises UserError if no commit has its code."""
    summary = read_summary(directory / NAME)
    gits = commits(summary)
    if not gits or any(git.get("dirty") for git in gits):
        raise UserError(f"{directory}: trained with uncommitted changes, allowed: in a clean clone, outside of it")
    kept = {key: summary[key] for key in ("run", "config_hash", "parameters_sha256", "values_sha256", "ended")}
    return kept | {"commit": gits[-1]["commit"], "processor": summary["launch"]["processor"]}


def with_uncommitted_changes(summaries: Iterable[Mapping[str, Any]], certificates: Certificates) -> tuple[int, int]:
    """How many runs were trained with uncommitted changes: without a certificate of their experiment, and with one."""
    dirty = [summary for summary in summaries if any(git.get("dirty") for git in commits(summary))]
    proven = sum("/".join(summary["run"].split("/")[:2]) in certificates for summary in dirty)
    return len(dirty) - proven, proven


def standing(certificates: Certificates, summaries: Iterable[Mapping[str, Any]]) -> Certificates:
    """The certificates of runs that an archive still has, with the same bits."""
    there = {(summary["run"], summary["config_hash"], summary.get("parameters_sha256")) for summary in summaries}
    keys = ("run", "config_hash", "parameters_sha256")
    return {name: entry for name, entry in certificates.items() if tuple(entry[key] for key in keys) in there}


def _cheapest(suite: Suite, scale: str, results: Path) -> dict[str, RunState]:
    """By `paper/experiment`, the run that took least time, of experiments with a run of uncommitted changes."""
    by_experiment: dict[str, list[RunState]] = {}
    for state in (state_of(run, results) for paper in suite.papers for run in suite.runs(paper, scale)):
        if state.result and any(git.get("dirty") for git in commits(state.result.summary)):
            by_experiment.setdefault(f"{state.run.paper}/{state.run.experiment}", []).append(state)
    return {name: min(states, key=_seconds) for name, states in by_experiment.items()}


def _seconds(state: RunState) -> float:
    return (state.result.summary["seconds"].get("wall") if state.result else None) or 0.0


def _stands_for(certificate: Mapping[str, Any] | None, before: RunState) -> bool:
    return bool(certificate and before.result and standing({"": dict(certificate)}, [before.result.summary]))


def _retrain(suite: Suite, run: Run, into: Path, train: Train) -> None:
    """Train a run unless it has ended there, and before it the one from which it starts."""
    if has_results(into / run.directory, run.hash):
        return
    for start in suite.expanded[run.paper]:
        if start.directory == run.start_directory:
            _retrain(suite, start, into, train)
    train(run, into)


def _launch(run: Run, into: Path) -> None:
    folder = into / run.directory
    write_text(folder / "run.yaml", run.to_yaml())
    command = [sys.executable, "-m", "resync", "launch", "--config", str(folder / "run.yaml"), "--out", str(folder)]
    if code := subprocess.run(command, check=False).returncode:
        raise UserError(f"{run.id}: its training ended with exit code {code}")


def _unlike(before: RunState, into: Path, archived: Path) -> str:
    """What differs between a run of the archive and the same run trained again; empty if nothing does."""
    folders = [results / before.run.directory for results in (archived, into)]
    summaries = [read_summary(folder / NAME) for folder in folders]
    for key in ("config_hash", "status", "steps", "parameters_sha256"):
        if summaries[0].get(key) != summaries[1].get(key):
            return f"{key}: {summaries[0].get(key)}, now {summaries[1].get(key)}"
    for name in ("metrics.csv", "steps.csv"):
        old, new = ((folder / name).read_text(encoding="utf-8") for folder in folders)
        columns = old.partition("\n")[0].split(",")
        try:
            if values_sha256([old]) != values_sha256([new], columns):
                return f"values of {name}"
        except ResultsError as error:
            return f"{name}: {error}"
    return ""

"""summary.json: written last, with the SHA-256 of the files beside it and of its own entries, and read only with them.

A summary whose digest fits is what this program wrote, so that its readers need not doubt the types in it.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from resync.errors import UserError
from resync.files import read_json, write_text
from resync.results.errors import MissingRun, ResultsError

NAME = "summary.json"
DIGESTS = "sha256"
"""The entry with the digest of each file, and under `NAME` that of all other entries of the summary."""

ARCHIVED = "archived"
"""The entry of a run that was unpacked from an archive: SHA-256 of its summary before, and of each file left out."""

TOTALS = ("steps", "rounds", "volume_percent", "bytes_sent")
_KEYS = ("status", "run", "config_hash", *TOTALS, "final", "best", "seconds")


def publish(
    directory: Path, tables: Mapping[str, str], summary: Mapping[str, Any], others: Iterable[Path] = ()
) -> None:
    """Write the results of a run: its tables by name, then the summary with their digests.

    `others` are files below `directory` that are complete already and whose digests the summary has too.
    Raises OSError if somebody deletes one of the files meanwhile, as Snakemake does when the client of a warm job was
    killed: a summary that stayed would make the run damaged.
    """
    digests = {path.relative_to(directory).as_posix(): digest_of(path) for path in others}
    for name, text in tables.items():
        write_text(directory / name, text)
        digests[name] = digest(text.encode())
    write_text(directory / NAME, text_of(summary, digests))
    if lost := [name for name in digests if not (directory / name).exists()]:
        (directory / NAME).unlink(missing_ok=True)
        raise FileNotFoundError(f"{directory / lost[0]}: deleted while the results were written")


def text_of(summary: Mapping[str, Any], digests: Mapping[str, str]) -> str:
    """The text of summary.json with these digests of the files beside it."""
    return json.dumps(sealed(summary, digests), indent=2, allow_nan=False) + "\n"


def read_summary(path: Path) -> dict[str, Any]:
    """A summary as it was written. Raises MissingRun or ResultsError with one line."""
    try:
        summary = read_json(path)
    except FileNotFoundError:
        raise MissingRun(f"{path}: missing, the run has not finished") from None
    except ValueError as error:
        raise ResultsError(str(error)) from None
    if not isinstance(summary, dict) or (absent := [key for key in _KEYS if key not in summary]):
        lacking = ", ".join(absent) if summary and isinstance(summary, dict) else "everything"
        raise ResultsError(f"{path}: not a run's summary, {lacking} missing")
    _require_seal(path, summary)
    if summary["status"] not in ("finished", "diverged"):
        raise ResultsError(f"{path}: status is {summary['status']!r}, allowed: finished, diverged")
    return summary


def refuse_other_results(directory: Path, config_hash: str) -> None:
    """Raise ValueError if a folder has the results of another configuration, which training would overwrite."""
    try:
        found = read_summary(directory / NAME)
    except ResultsError:  # none, or none that anybody could use
        return
    if found["config_hash"] != config_hash:
        raise UserError(
            f"--out {directory}: has results of {found['run']} with configuration {found['config_hash']}, allowed for "
            f"configuration {config_hash}: another folder, or this one without {NAME}"
        )


def has_results(directory: Path, config_hash: str) -> bool:
    """Whether a folder has the results of a configuration, every file as it was written."""
    try:
        summary = read_summary(directory / NAME)
        written = {name: value for name, value in summary[DIGESTS].items() if name != NAME}
        unchanged = all(digest_of(directory / name) == value for name, value in written.items())
    except (ResultsError, OSError):
        return False
    return unchanged and summary["config_hash"] == config_hash and not left_out(summary)


def sealed(summary: Mapping[str, Any], digests: Mapping[str, str]) -> dict[str, Any]:
    """The summary with the digests of the files beside it and of its own entries."""
    entries = {**summary, DIGESTS: dict(digests)}
    return {**summary, DIGESTS: {**digests, NAME: _digest_of_entries(entries)}}


def commits(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The commits with which the jobs of a run have trained it, each with `commit` and `dirty`; none if unknown."""
    jobs = summary.get("jobs") or [{**summary, "first_step": 0}]
    return [job["git"] for job in trained(jobs, summary["steps"]) if job.get("git")]


def trained(jobs: Sequence[dict[str, Any]], steps: int) -> Sequence[dict[str, Any]]:
    """The jobs that took some of a run's steps, or the last one if none did."""
    return [job for job in jobs if job["first_step"] < steps] or jobs[-1:]


def left_out(summary: Mapping[str, Any]) -> dict[str, str]:
    """The files that an archive has left out of a run, with their SHA-256; none if training wrote the summary."""
    return dict((summary.get(ARCHIVED) or {}).get("left_out", {}))


def digest(content: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def digest_of(path: Path) -> str:
    """SHA-256 of a file, of which only a part is in memory at a time."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_unchanged(path: Path, found: str, summary: Mapping[str, Any]) -> None:
    """Raise ResultsError unless the file beside the summary still has the digest with which it was written."""
    written = summary[DIGESTS].get(path.name)
    if found != written:
        recorded = f"has {written[:12]}..." if written else "has none"
        raise ResultsError(f"{path}: changed since it was written: SHA-256 {found[:12]}..., summary.json {recorded}")


def _require_seal(path: Path, summary: dict[str, Any]) -> None:
    digests = summary.get(DIGESTS)
    if not isinstance(digests, dict) or NAME not in digests:
        raise ResultsError(f"{path}: has no SHA-256 of its entries: edited, or of another version of resync")
    others = {name: value for name, value in digests.items() if name != NAME}
    if _digest_of_entries({**summary, DIGESTS: others}) != digests[NAME]:
        raise ResultsError(f"{path}: edited or damaged: its entries have another SHA-256 than when they were written")


def _digest_of_entries(entries: dict[str, Any]) -> str:
    """The digest of a summary's entries: as JSON with sorted keys and without blanks."""
    return digest(json.dumps(entries, sort_keys=True, separators=(",", ":")).encode())

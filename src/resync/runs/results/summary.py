"""summary.json: written last, with the SHA-256 of the files beside it and of its own entries, and read only with them.

Whoever makes an archive can seal any summary: what is read also has the types that its readers rely on.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from csv import reader as csv_rows
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from resync.base.errors import UserError
from resync.base.files import lines_of, open_regular, read_json, write_text
from resync.runs.metrics.registry import METRICS
from resync.runs.results.errors import MissingRun, ResultsError

NAME = "summary.json"
DIGESTS = "sha256"
"""The entry with the digest of each file, and under `NAME` that of all other entries of the summary."""

ARCHIVED = "archived"
"""The entry of a run that was unpacked from an archive: SHA-256 of its summary before, and of each file left out."""

TOTALS = ("steps", "rounds", "volume_percent", "bytes_sent")
_KEYS = ("status", "run", "config_hash", *TOTALS, "final", "best", "seconds")


Total = Annotated[float, Field(ge=0)]
"""A number that counts something: it is missing or at least 0."""


def _with_zone(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("a time with its zone")
    return text


Time = Annotated[str, AfterValidator(_with_zone)]
"""As in ISO 8601. Others could not be compared."""


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class _Git(_Part):
    # Pages show it in a command to copy.
    commit: str | None = Field(default=None, pattern=r"^([0-9a-f]+|\(initial\))$")
    dirty: bool | None = None


class _Job(_Part):
    started: str | None
    seconds: Total | None
    first_step: int
    git: _Git | None


class _Archived(_Part):
    summary_sha256: str
    left_out: dict[str, str]
    first_started: Time | None = None


class _Source(_Part):
    name: str
    sha256: str
    run: str | None = None


class _Imported(_Part):
    format: str
    sources: list[_Source]
    notes: list[str] = []


class _Seconds(_Part):
    training: Total | None
    communication: Total | None
    evaluation: Total | None
    wall: Total | None = None


class _Summary(_Part):
    """The entries that somebody reads; those of an imported log lack some."""

    status: Literal["finished", "diverged"]
    run: str
    config_hash: str
    steps: int = Field(ge=0, lt=2**63)
    rounds: Total | None
    volume_percent: Total | None
    bytes_sent: Total | None
    final: dict[str, float | None]
    best: dict[str, float | None]
    seconds: _Seconds
    sha256: dict[str, str]
    wire_bytes: Total | None = None
    parameters: Total | None = None
    data: dict[str, str | None] | None = None
    launch: dict[str, str | int] | None = None
    versions: dict[str, str | None] | None = None
    variables: dict[str, str] | None = None
    signatures: dict[str, str] | None = None
    git: _Git | None = None
    jobs: list[_Job] | None = None
    resumed_from: list[int] | None = None
    diverged: dict[str, int | None] | None = None
    imported: _Imported | None = None
    archived: _Archived | None = None
    parameters_sha256: str | None = None
    values_sha256: str | None = None
    started: Time | None = None
    ended: str | None = None


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
    """The text of summary.json with the digests of the files beside it and of its own entries."""
    own = _digest_of_entries({**summary, DIGESTS: dict(digests)})
    return json.dumps({**summary, DIGESTS: {**digests, NAME: own}}, indent=2, allow_nan=False) + "\n"


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
    try:
        _Summary.model_validate(summary)
    except ValidationError as error:
        raise ResultsError(f"{path}: {first_of(error)}") from None
    return summary


def first_of(error: ValidationError) -> str:
    """The first problem of a file: where, what was found, and what is allowed."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: found {first['input']!r:.60}, {first['msg']}"


def refuse_other_results(directory: Path, config_hash: str) -> None:
    """Raise ValueError if a folder has the results of another configuration, which training would overwrite."""
    try:
        summary = read_summary(directory / NAME)
    except ResultsError:  # none, or none that anybody could use
        return
    if summary["config_hash"] != config_hash:
        raise UserError(
            f"--out {directory}: has results of {summary['run']} with configuration {summary['config_hash']}, allowed "
            f"for configuration {config_hash}: another folder, or this one without {NAME}"
        )


def has_results(directory: Path, config_hash: str) -> bool:
    """Whether a folder has the results of a configuration, every file as it was written."""
    try:
        summary = read_summary(directory / NAME)
        written = {name: value for name, value in summary[DIGESTS].items() if name != NAME}
        unchanged = all(digest_of(directory / name) == value for name, value in written.items())
    except (UserError, OSError):
        return False
    return unchanged and summary["config_hash"] == config_hash and not left_out(summary)


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


def first_started(summary: Mapping[str, Any]) -> datetime | None:
    """When the run began, or the first one of its configuration that it has replaced in an archive; None if unknown."""
    text = (summary.get(ARCHIVED) or {}).get("first_started") or summary.get("started")
    return datetime.fromisoformat(text) if text else None


def digest(content: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def values_sha256(tables: Iterable[str], columns: Iterable[str] | None = None) -> str:
    """SHA-256 of tables as text, without the columns that depend on the machine: equal for trainings of the same bits.

    With `columns`, only of these. Raises ResultsError if a table lacks one.
    """
    kept = []
    for table in tables:
        rows = list(csv_rows(lines_of(table)))
        header = rows[0] if rows else []
        chosen = [name for name in columns or header if METRICS[name].depends_on != "hardware"] if rows else []
        if lacking := [name for name in chosen if name not in header]:
            raise ResultsError(f"has no column {lacking[0]}")
        places = [header.index(name) for name in chosen]
        kept.append([[row[place] for place in places] for row in rows])
    return digest(json.dumps(kept).encode())


def digest_of(path: Path) -> str:
    """SHA-256 of a file, of which only a part is in memory at a time."""
    with open_regular(path) as file:
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

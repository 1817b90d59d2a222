"""The audit as JSON, for programs and for pages of the site; that of a scale is read from those of its papers."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from resync.base.errors import UserError
from resync.base.files import read_json, write_text
from resync.base.settings.errors import suggestion
from resync.base.text_tables import json_text
from resync.papers.audit.headline import headline, sentence, totals
from resync.papers.audit.rows import LOG_CLAIM, LOGS, Audit, ClaimRow, ValueRow
from resync.papers.audit.score import score
from resync.papers.audit.surviving import surviving
from resync.papers.audit.verdicts import FAILURES, REASONS, VERDICTS
from resync.papers.paper import Suite

_ROWS = TypeAdapter(tuple[ValueRow, ...])
_CLAIMS = TypeAdapter(tuple[ClaimRow, ...])
_DAMAGED = TypeAdapter(tuple[str, ...])


def write(audit: Audit, directory: Path) -> Path:
    """Write `audit.json` into `directory`; return its path."""
    write_text(directory / "audit.json", to_json(audit))
    return directory / "audit.json"


def to_json(audit: Audit) -> str:
    """Every row and claim with all its fields; a number that is NaN or infinite becomes null."""
    content = {
        "scale": audit.scale,
        "score": score(map(vars, audit.lines), audit.scale),
        "sentence": sentence(audit),
        "headline": headline(audit),
        "totals": totals(audit),
        "failed": audit.failed,
        "verdicts": {word: meaning for word, (_, meaning) in VERDICTS.items()},
        "reasons": REASONS,
        "signs": {word: sign for word, (sign, _) in VERDICTS.items()},
        "failures": FAILURES,
        "rows": [asdict(row) for row in audit.rows],
        "claims": [asdict(claim) for claim in audit.claims],
        "damaged": audit.damaged,
        "missing_items": {name: [item.model_dump() for item in paper.missing] for name, paper in audit.papers.items()},
    }
    return json_text(content, indent=1) + "\n"


def gather(suite: Suite, scale: str, results: Path) -> Audit:
    """The audits of all papers at a scale, read from their `audit.json`. Raises ValueError if one is missing."""
    rows: list[ValueRow] = []
    claims: list[ClaimRow] = []
    damaged: dict[str, tuple[str, ...]] = {}
    for paper in suite.papers:
        file = results / scale / paper / "audit.json"
        try:
            content = read_json(file)
            rows += _ROWS.validate_python(content["rows"])
            claims += _CLAIMS.validate_python(content["claims"])
            damaged[paper] = _DAMAGED.validate_python(content["damaged"][paper])
        except FileNotFoundError:
            raise UserError(
                f"{file}: missing, allowed: a file written by `resync audit {paper} --scale {scale}`"
            ) from None
        except (KeyError, TypeError, ValidationError) as error:
            raise UserError(f"{file}: not an audit: {str(error).splitlines()[0]}") from None
    return Audit(scale, results, suite.papers, tuple(rows), surviving(claims), damaged)


def find(audit: Audit, ids: Iterable[str]) -> dict[str, ValueRow | ClaimRow]:
    """The claims and published numbers with these ids, `paper/id`, or `id` if no other paper has it, by `paper/id`.

    Raises ValueError for an unknown or ambiguous id.
    """
    lines = [line for line in audit.lines if line.kind not in (LOGS, LOG_CLAIM)]
    known = {f"{line.paper}/{name}": line for line in lines for name in _ids(line)}
    chosen = {}
    for wanted in ids:
        names = [name for name in known if wanted in (name, name.partition("/")[2])]
        if len(names) > 1:
            raise UserError(f"{wanted}: found in several papers, allowed: {' or '.join(names)}")
        if not names:
            paper, slash, _ = wanted.rpartition("/")
            bare = (name.partition("/")[2] for name in known)
            of = [name for name in known if name.startswith(f"{paper}/")] if slash else [*known, *bare]
            allowed = f"an id in audit.json{suggestion(wanted, of)}"
            raise UserError(f"claim or published number: found {wanted!r}, allowed: {allowed}")
        chosen[names[0]] = known[names[0]]
    return chosen


def answer(lines: Mapping[str, ValueRow | ClaimRow], as_json: bool) -> str:
    """The verdicts on some claims and published numbers: JSON with all that is known of them, or a line each."""
    if as_json:
        return json_text({name: asdict(line) for name, line in lines.items()}, indent=1)
    return "\n".join(f"{name}: {line.verdict} ({line.because}): {line.reason}" for name, line in lines.items())


def _ids(line: ValueRow | ClaimRow) -> list[str]:
    """The ids of a line: of a published quantity, those of all its sources."""
    return [line.id, *(other.id for other in line.also)] if isinstance(line, ValueRow) else [line.id]

"""The audit of a scale, assembled from the files that the audits of its papers have written."""

from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from resync.audit.rows import Audit, ClaimRow, ValueRow
from resync.audit.surviving import surviving
from resync.errors import UserError
from resync.files import read_json
from resync.paper import Suite

_ROWS = TypeAdapter(tuple[ValueRow, ...])
_CLAIMS = TypeAdapter(tuple[ClaimRow, ...])
_DAMAGED = TypeAdapter(tuple[str, ...])


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
                f"{file}: missing, allowed: a file written by `resync audit --paper {paper} --scale {scale}`"
            ) from None
        except (KeyError, TypeError, ValidationError) as error:
            raise UserError(f"{file}: not an audit: {str(error).splitlines()[0]}") from None
    return Audit(scale, results, suite.papers, tuple(rows), surviving(claims), damaged)

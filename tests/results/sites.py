"""The site of the made-up results."""

from pathlib import Path

from resync.audit import audit, write
from resync.config import Suite
from resync.report import report


def written(suite: Suite, results: Path, figures: Path) -> Path:
    """The folder of the site at smoke scale, after an audit."""
    for folder in ("smoke/toy", "smoke"):
        write(audit(suite, "smoke", results), results / folder)
    return report(suite, "smoke", results, figures).parent

"""The site of the made-up results."""

import json
from pathlib import Path
from typing import Any

from resync.audit import audit, write
from resync.config import Suite
from resync.report import report

POINTS = """\
panel,series,shows,x_axis,x,y_axis,y,low,high,interval,n,seed
a,"QSR, H_base = 4",computed,Epoch,0.0,Period,4.0,,,,,
a,"QSR, H_base = 4",computed,Epoch,30.0,Period,90.0,80.0,95.0,range,3,
a,"QSR, H_base = 4","published, verified",Epoch,15.0,Period,40.0,,,,,
a,Limit,computed,Epoch,,Period,50.0,,,,,
b,Model,simulated,Workers,4,Time (s),0.5,,,,,
b,Model,simulated,Workers,1024,Time (s),2.5,,,,,
"""
"""The points behind a figure, as kinds of figures write them."""


def written(suite: Suite, results: Path, figures: Path, **audited: Any) -> Path:
    """The folder of the site at smoke scale, after an audit with further entries."""
    for folder in ("smoke/toy", "smoke"):
        write(audit(suite, "smoke", results), results / folder)
    file = results / "smoke/audit.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | audited))
    return report(suite, "smoke", results, figures).parent


def score() -> dict[str, Any]:
    """The entries of an audit that has a score."""
    shares = {"reproduced": 0.125, "holds": 0.25, "fails": 0.0, "undecided": 0.625, "why": {"not run": 0.625}}

    def part(**parts: Any) -> dict[str, Any]:
        return {"weight": 1.0, **shares, "parts": parts}

    outcomes = {"reproduced": "agrees", "holds": "is shown", "fails": "is contradicted", "undecided": "everything else"}
    section = part(fig5=part(), **{"(text)": part()})
    return {
        "score": part(toy=part(**{"Main results": section})),
        "outcomes": outcomes,
        "why_undecided": {"not run": "without results"},
    }

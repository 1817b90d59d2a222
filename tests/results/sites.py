"""The site of the made-up results."""

from pathlib import Path

from resync.papers.audit import audit, write
from resync.papers.paper import Suite
from resync.papers.report import report

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


def written(suite: Suite, results: Path, figures: Path) -> Path:
    """The folder of the site at smoke scale, after an audit."""
    for folder in ("smoke/toy", "smoke"):
        write(audit(suite, "smoke", results), results / folder)
    return report(suite, "smoke", results, figures).parent

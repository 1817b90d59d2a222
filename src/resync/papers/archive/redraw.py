"""Everything that follows from results, drawn without training and without Snakemake."""

import os
from concurrent.futures import ProcessPoolExecutor
from contextlib import chdir
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from resync.papers.archive.unpack import unpack
from resync.papers.audit import audit, gather, sentence, write
from resync.papers.paper import Suite
from resync.papers.render.item import render
from resync.papers.render.options.base import KindOptions
from resync.papers.report import report
from resync.runs.results.errors import ResultsError
from resync.runs.results.summary import NAME

RESULTS, FIGURES = Path("results"), Path("figures")
"""The folders of runs, audits and pages, and of figures and tables, below that of everything that is drawn."""


@dataclass(frozen=True)
class Drawn:
    """What was drawn of a scale: each item by paper and name, with the reason if it is absent; the audit's sentence."""

    items: dict[tuple[str, str], str]
    sentence: str

    @property
    def absent(self) -> dict[tuple[str, str], str]:
        return {item: reason for item, reason in self.items.items() if reason}


def redraw(suite: Suite, scale: str, archive: Path, into: Path) -> Drawn:
    """Unpack a scale of an archive below `into`, and draw its figures, tables, audits and pages there.

    Of a paper without a run in it, there are audits and pages only. Raises ResultsError for a damaged archive.
    """
    unpack(archive, scale, into / RESULTS)
    papers = [paper for paper in suite.papers if (archive / scale / paper).is_dir()]
    # Reasons in audits name files. Relative names are those that the workflow has, on every machine.
    with chdir(into):
        names = [(paper, item) for paper in papers for item in suite.items(paper, scale)]
        # Forked processes have what is imported and read already.
        with ProcessPoolExecutor(
            os.cpu_count(), mp_context=get_context("fork"), initializer=_begin, initargs=(suite, scale)
        ) as pool:
            audits = pool.map(_audit, suite.papers)
            items = dict(zip(names, pool.map(_draw, names), strict=True))
            list(audits)
        whole = gather(suite, scale, RESULTS)
        write(whole, RESULTS / scale)
        report(suite, scale, RESULTS, FIGURES)
    return Drawn(items, sentence(whole))


_drawn: tuple[Suite, str]
"""The papers and the scale that a process draws."""


def _begin(suite: Suite, scale: str) -> None:
    global _drawn
    _drawn = suite, scale


def _draw(name: tuple[str, str]) -> str:
    suite, scale = _drawn
    paper, item = name
    runs = suite.item_runs(paper, item, scale)
    needed = runs and not KindOptions.named(suite.papers[paper].items[item].kind).planned
    if needed and not any((RESULTS / run.directory / NAME).exists() for run in runs):
        return f"none of its {len(runs)} runs is in the archive"
    try:
        render(suite, paper, item, scale, RESULTS, FIGURES)
    except ResultsError as error:
        return str(error)
    return ""


def _audit(paper: str) -> None:
    suite, scale = _drawn
    write(audit(suite, scale, RESULTS, [paper]), RESULTS / scale / paper)

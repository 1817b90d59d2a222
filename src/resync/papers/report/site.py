"""The site of a scale: pages that work from a file system as from a web server, offline, and without JavaScript.

Everything that a page needs lies in the site's folder, figures included, so that the folder can be moved or published.
"""

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from resync.base.files import delete_folder, write_text
from resync.papers.audit.in_words import effect_in_words
from resync.papers.audit.rows import CLAIM, CLAIMS, MEASURED, is_failure
from resync.papers.audit.score import claims_of_papers, counted_in_words, counts
from resync.papers.audit.verdicts import AGREES, OPEN, UNTESTED
from resync.papers.paper import Suite
from resync.papers.paper.paper import Paper
from resync.papers.report.audit_lines import effect_strip, sections
from resync.papers.report.content import ARCHIVE, Content, Line, page_of, read_audit
from resync.papers.report.coverage import ABSENT, DRAWN, MEANINGS, SIGNS, by_paper, coverage, of_all
from resync.papers.report.curves import main_metric, metric_names, run_data
from resync.papers.report.items import item_entry
from resync.papers.report.run_page import run_page, shown
from resync.papers.report.writer import ASSETS, Writer
from resync.runs.metrics.registry import METRICS
from resync.runs.results.runs import RunState
from resync.runs.results.seed_values import SeedValues, notation
from resync.runs.results.status import PROBLEMS
from resync.runs.results.summary import commits
from resync.runs.run.in_words import tallied
from resync.runs.run.run import SCALES

_IN_GALLERY = 4
_COPIED = ("run.yaml", "summary.json", "metrics.csv")
"""The files of a run that lie beside its page; steps.csv may be as large as all others together."""


def report(suite: Suite, scale: str, results: Path, figures: Path) -> Path:
    """Write the site of a scale and `results/index.html`; return the site's first page.

    What is missing is named on the pages. The folder `results/<scale>/site` is replaced as a whole.
    """
    folder = results / scale / "site"
    aside = folder.with_name(".site.tmp")
    shutil.rmtree(aside, ignore_errors=True)
    _Site(Content(suite, scale, results, figures), aside).write()
    if folder.exists():
        delete_folder(folder)
    aside.rename(folder)
    write_index(suite, results, figures)
    return folder / "index.html"


class _Site:
    def __init__(self, content: Content, folder: Path) -> None:
        self.content = content
        self.coverage = coverage(content.suite, content.figures)
        audit = content.audit
        self.writer = Writer(
            folder,
            scale=content.scale,
            papers=content.papers,
            METRICS=METRICS,
            page_of=page_of,
            shown=shown,
            signs=audit.get("signs", {}),
            meanings=audit.get("verdicts", {}),
            failures=audit.get("failures", ()),
            reasons=audit.get("reasons", {}),
            items_of_line=content.items_of_line,
            CLAIMS=CLAIMS,
            AGREES=AGREES,
            UNTESTED=UNTESTED,
            effect_in_words=effect_in_words,
            effect_strip=effect_strip,
            cell_signs=SIGNS,
            cell_meanings=MEANINGS,
            suite=content.suite,
            missing=[(paper, item) for paper in content.suite.papers.values() for item in paper.missing],
        )

    def write(self) -> None:
        self._assets()
        for paper in self.content.papers:
            self._paper(paper)
        for state in self.content.states.values():
            self._run(state)
        content = self.content
        score = self._scores() if content.scale != "smoke" else []
        self.writer.page("audit.html", "audit", audit=content.audit, sections=sections(content.lines), score=score)
        rows = [_series_row(states) for states in self.content.series.values()]
        self.writer.page("runs.html", "runs", rows=rows)
        self.writer.page("compare.html", "compare")
        self._overview()

    def _assets(self) -> None:
        for file in ASSETS.iterdir():
            self.writer.copy(file, f"assets/{file.name}")
        ended = (state.run for state in self.content.states.values() if state.has_ended)
        index = {run.id: f"{run.label}, seed {run.seed}" for run in ended}
        for name, content in (("metrics", metric_names()), ("runs", index)):
            script = json.dumps(content, separators=(",", ":"))
            self.writer.text(f"assets/{name}.js", f"resync.{name} = {script};\n")

    def _overview(self) -> None:
        content, archive = self.content, self.content.archive
        known = archive.get("lines", []) if content.scale == "smoke" else content.lines
        tried = [line for line in known if line["kind"] == CLAIM and line["verdict"] != UNTESTED]
        # What was fixed before its runs says more than what is exploratory.
        tried.sort(key=lambda line: (bool(line["exploratory"]), not line.get("headline")))
        self.writer.page(
            "index.html",
            "overview",
            audit=content.audit,
            summary=self._summary(),
            numbers=self._numbers(),
            gallery=self._gallery(),
            agree=[line for line in tried if line["verdict"] == AGREES],
            differ=[line for line in tried if is_failure(line["kind"], line["verdict"])],
            undecided=[line for line in tried if line["verdict"] == OPEN],
            of_archive=content.scale == "smoke",
            legend={"width": 60, "box": (22, 24), "zero": 6, "bar": 14, "dots": [34], "text": "an example of a bar"},
            coverage=self.coverage,
            counts=by_paper(self.coverage),
            totals=of_all(self.coverage),
            entries=[self._paper_totals(paper) for paper in content.papers],
            problems=[state for state in content.states.values() if state.status in PROBLEMS],
            scales=content.suite.scales,
            note=_note(content.states.values()),
        )

    def _summary(self) -> str:
        """What this scale says of the papers' claims."""
        if self.content.scale == "smoke":
            return "Smoke scale shows that everything works here. Its tiny models test no claim of a paper."
        claims = claims_of_papers(self.content.lines, self.content.scale)
        return f"{counted_in_words(claims).capitalize()}." if claims else ""

    def _numbers(self) -> list[tuple[str, str]]:
        """The numbers of the first page, each with what it counts: numbers, claims, and what was drawn or trained."""
        content, total = self.content, of_all(self.coverage)[self.content.scale]
        ended = sum(state.has_ended for state in content.states.values())
        done = [
            (f"{total.drawn} of {total.declared}", "figures and tables are drawn"),
            (f"{ended:,} of {len(content.states):,}", "runs have finished"),
        ]
        if content.scale == "smoke":
            return done
        numbers = counts(line for line in content.lines if line["kind"] == MEASURED)
        claims = counts(claims_of_papers(content.lines, content.scale))
        tried = sum(claims.values()) - claims.get(UNTESTED, 0)
        return [
            (f"{numbers.get(AGREES, 0):,}", f"of {sum(numbers.values()):,} published numbers agree"),
            (f"{claims.get(AGREES, 0)} of {tried}", "claims with a result agree"),
            done[0],
        ]

    def _gallery(self) -> list[dict[str, str]]:
        """Four figures: of every paper its best that is drawn, then the next; first where most claims are tested."""
        content = self.content

        def evidence(paper: Paper) -> tuple[int, int]:
            lines = [line for line in content.lines_of(paper.id) if line["verdict"] != UNTESTED]
            return -sum(line["kind"] == CLAIM for line in lines), -sum(line["kind"] == MEASURED for line in lines)

        of_papers = [list(self._pictures(paper)) for paper in sorted(content.papers, key=evidence)]
        ranked = (picture for row in zip_longest(*of_papers) for picture in row if picture)
        return list(islice(ranked, _IN_GALLERY))

    def _pictures(self, paper: Paper) -> Iterator[dict[str, str]]:
        content = self.content
        figures = [figure for figure in paper.figures if figure.id in content.items[paper.id]]
        if chosen := [figure for figure in figures if figure.id in paper.gallery]:
            figures = sorted(chosen, key=lambda figure: paper.gallery.index(figure.id))
        for item in figures:
            if (content.figures / content.scale / paper.id / f"{item.id}.svg").exists():
                runs = content.suite.item_runs(paper.id, item.id, content.scale)
                title = item.title_at(runs, content.suite.references(paper.id, item.id, content.scale))
                yield {
                    "paper": paper.name,
                    "title": title,
                    "page": f"{paper.id}/index.html",
                    "id": item.id,
                    "src": f"figures/{paper.id}/{item.id}.svg",
                }

    def _scores(self) -> list[tuple[str, str, str, str]]:
        if not self.content.audit:
            return []
        pages = {paper.id for paper in self.content.papers}
        papers = [
            (paper.name, f"{name}/index.html" if name in pages else "", *self._counted(self.content.lines_of(name)))
            for name, paper in self.content.suite.papers.items()
        ]
        return [("All papers", "", *self._counted(self.content.lines)), *papers]

    def _counted(self, lines: Sequence[Line]) -> tuple[str, str]:
        """What came of the published numbers that are measured, and of the claims of papers."""
        numbers = tallied(counts(line for line in lines if line["kind"] == MEASURED))
        return numbers, counted_in_words(claims_of_papers(lines, self.content.scale))

    def _paper_totals(self, paper: Paper) -> dict[str, Any]:
        content = self.content
        states = [state for state in content.states.values() if state.run.paper == paper.id]
        cells = [cell for row in self.coverage if row.paper == paper.id for cell in row.cells]
        here = [cell.state for cell in cells if cell.scale == content.scale]
        lines = content.lines_of(paper.id)
        return {
            "paper": paper,
            "ended": sum(state.has_ended for state in states),
            "declared": len(states),
            "drawn": here.count(DRAWN),
            "items": len(here) - here.count(ABSENT),
            "elsewhere": here.count(ABSENT),
            "counts": {
                kind: counts(line for line in lines if line["kind"] == kind)
                for kind in dict.fromkeys(line["kind"] for line in lines)
            },
        }

    def _paper(self, paper: Paper) -> None:
        rows = [row for row in self.coverage if row.paper == paper.id]
        content = self.content
        shown = {run.experiment for run in content.suite.runs(paper.id, content.scale)}
        self.writer.page(
            f"{paper.id}/index.html",
            "paper",
            paper=paper,
            entries=[item_entry(content, paper, row, self.writer) for row in rows],
            experiments=[experiment for name, experiment in paper.experiments.items() if name in shown],
            series={name: states for name, states in content.series.items() if name[0] == paper.id},
            totals=self._paper_totals(paper),
        )

    def _run(self, state: RunState) -> None:
        run = state.run
        directory = self.content.results / run.directory
        copied = [name for name in _COPIED if state.result and (directory / name).exists()]
        for name in copied:
            self.writer.copy(directory / name, f"{run.id}/{name}")
        self.writer.page(page_of(run), "run", **run_page(self.content, state), copied=copied)
        time = self.content.times[run.paper, run.experiment, run.series]
        self.writer.text(f"{run.id}/data.js", run_data(state, self.content.settings[run.id], time))


def _series_row(states: list[RunState]) -> dict[str, Any]:
    """A line of the list of runs: a series with its main metric over the seeds that have ended, and these."""
    results = [state.result for state in states if state.status == "finished" and state.result]
    metric = main_metric(results[0]) if results else ""
    values = SeedValues.of(result.final(metric) for result in results)
    text = notation(values.mean, values.std, values.n) if values.finite else ""
    return {
        "states": states,
        "run": states[0].run,
        "metric": metric,
        "text": text,
        "mean": values.mean if values.finite else None,
        "statuses": Counter(state.status for state in states),
    }


def _note(states: Iterable[RunState]) -> str:
    summaries = [state.result.summary for state in states if state.result]
    ended = max((summary.get("ended") or "" for summary in summaries), default="")
    gits = [git for summary in summaries for git in commits(summary)]
    names = sorted({git["commit"][:10] for git in gits if git.get("commit")})
    if not ended:
        return ""
    dirty = sum(any(git.get("dirty") for git in commits(summary)) for summary in summaries)
    changed = f", {dirty:,} of {len(summaries):,} runs with uncommitted changes" if dirty else ""
    trained = f"; trained at commit {', '.join(names)}{changed}" if names else ""
    return f"Newest result: {ended[:10]} {ended[11:16]} UTC{trained}."


def write_index(suite: Suite, results: Path, figures: Path) -> None:
    """Write `results/index.html`, which leads to the sites of all scales, or says how to get them."""
    rows = coverage(suite, figures)
    entries = [
        {
            "scale": scale,
            "sentence": _sentence(results, scale) if scale != "smoke" else "",
            "archive": _sentence(results / ARCHIVE, scale),
            "site": next((site for site in _places(scale) if (results / site).exists()), ""),
        }
        for scale in SCALES
    ]
    pages = {(scale, paper): f"{scale}/site/{paper}/index.html" for scale in SCALES for paper in suite.papers}
    sites = {key: page for key, page in pages.items() if (results / page).exists()}
    css = (ASSETS / "site.css").read_text(encoding="utf-8")
    content = {"entries": entries, "css": css, "counts": by_paper(rows), "totals": of_all(rows), "links": sites}
    write_text(results / "index.html", Writer(results, suite=suite).html("index", **content))


def _places(scale: str) -> tuple[str, ...]:
    """Where a site may lie: that of the results here, and that of the archive as `make report-reference` draws it."""
    return f"{scale}/site/index.html", f"../.reference/results/{scale}/site/index.html"


def _sentence(results: Path, scale: str) -> str:
    """What a scale's audit says of the papers' claims, or why it cannot be read, which stops no report."""
    try:
        lines = read_audit(results / scale / "audit.json").get("lines", [])
    except ValueError as error:
        return str(error)
    claims = claims_of_papers(lines, scale)
    return f"{counted_in_words(claims)}." if claims else ""

"""Verbs on archives of results: they pack, unpack, draw and compare, and train nothing."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from resync.base.errors import UserError
from resync.base.text_tables import json_text
from resync.runs.run.run import SCALES
from resync.tools.cli.declare import CONFIGS, FIGURES, JSON, RESULTS, flag, or_archive, suite_of, verb

if TYPE_CHECKING:
    from resync.papers.archive.pack import Packed
    from resync.papers.archive.redraw import Drawn


def _limit(text: str) -> float:
    if not 0 <= (value := float(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"found {text}, allowed: a number >= 0")
    return value


_SCALES = flag("--scale", choices=SCALES, help="only this scale (default: all that there are)")


@verb(
    "pack results and what is drawn from them as a Workflow Run RO-Crate: a folder to publish",
    CONFIGS, _SCALES,
    flag("--out", type=Path, required=True, help="the new folder"),
    flag("--licence", default="Apache-2.0", metavar="SPDX", help="licence of the results (default: %(default)s)"),
    flag("--author", action="append", default=[], metavar="NAME",
         help="who made the results: `Name`, or `Name (ORCID)`; may be given several times"),
    flag("results", type=Path, metavar="RESULTS", help="folder of the results, or another archive"),
)  # fmt: skip
def _archive(options: argparse.Namespace) -> None:
    from resync.papers.archive.crate import Terms, archive
    from resync.papers.archive.unpack import opened

    terms, suite = Terms(options.licence, tuple(options.author)), suite_of(options)
    with opened(options.results) as results:
        scales = _choose_scales(options, [scale for scale in SCALES if _has_results(results, scale)], options.results)
        made = archive(suite, scales, results, Path(), options.configs, options.out, terms)
    for scale, (packed, drawn) in made.items():
        _tell(scale, packed, drawn)
    print(options.out)


@verb(
    "draw everything from an archive again, in a new folder, without training",
    CONFIGS, _SCALES,
    flag("--into", type=Path, required=True, metavar="DIR", help="the new folder, with results/ and figures/"),
    flag("archive", type=Path, metavar="ARCHIVE", help="folder from `resync archive` or `resync reference`"),
)  # fmt: skip
def _redraw(options: argparse.Namespace) -> None:
    from resync.papers.archive.redraw import redraw
    from resync.papers.archive.unpack import archive_in

    suite, archive = suite_of(options), archive_in(options.archive)
    into = _new_folder(options.into)
    for scale in _choose_scales(options, _scales_of(archive), archive):
        drawn = redraw(suite, scale, archive, into)
        _tell(scale, None, drawn)
        print(into / "results" / scale / "site" / "index.html")


@verb(
    "renew, check or certify the repository's own archive, results/reference and figures/reference",
    CONFIGS, RESULTS, FIGURES, _SCALES,
    flag("--into", type=Path, metavar="DIR",
         help="for check: draw in this new folder, and keep it; for certify: train in this folder, and go on there"),
    flag(
        "action",
        choices=("renew", "check", "certify"),
        help="renew: add the runs of --results, draw everything from all runs, and renew what README.md shows of them; "
        "check: draw everything again, and exit with 1 if anything differs from what is committed, or from what "
        "README.md and docs/ quote and show, or if a link of a site is "
        "broken; certify: train a run of each experiment that was trained with uncommitted "
        "changes again, and note that its bits are the same (exit with 1 if they are not)",
    ),
)  # fmt: skip
def _reference(options: argparse.Namespace) -> int:
    return {"renew": _renew, "check": _check, "certify": _certify}[options.action](options)


def _certify(options: argparse.Namespace) -> int:
    from resync.papers.archive.certificates import certify
    from resync.papers.archive.reference import place_of

    if not options.into:
        raise UserError("--into: missing, allowed: a folder in which to train")
    archive, suite = place_of(options.results, options.figures).archive, suite_of(options)
    lines = []
    for scale in _choose_scales(options, _scales_of(archive), archive):
        for line in certify(suite, scale, archive, options.into):
            lines.append(line)
            print(f"{scale}: {line}", flush=True)
    return 1 if any("differs" in line for line in lines) else 0


def _renew(options: argparse.Namespace) -> int:
    from resync.base.files import write_text
    from resync.papers.archive.fixed import write_fixed
    from resync.papers.archive.page_blocks import fill
    from resync.papers.archive.reference import place_of, renew

    place = place_of(options.results, options.figures)
    if options.into:
        raise UserError("--into: has no effect on renew")
    if not options.scale:
        raise UserError(f"--scale: missing, allowed: {', '.join(SCALES)}")
    if Path(".git").exists():
        write_fixed(options.configs)
    suite = suite_of(options)
    packed, drawn = renew(suite, options.scale, options.results, place)
    for page in _pages():
        if (text := fill(page, suite, place)) != page.read_text(encoding="utf-8"):
            write_text(page, text)
    _tell(options.scale, packed, drawn)
    for folder in (place.archive / options.scale, place.figures / options.scale):
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        print(f"{folder}: {size / 1e6:.1f} MB")
    return 0


def _check(options: argparse.Namespace) -> int:
    from tempfile import TemporaryDirectory

    from resync.papers.archive.build import drawn_place
    from resync.papers.archive.page_blocks import outdated
    from resync.papers.archive.reference import check, other_versions, place_of, wrong_quotes_in
    from resync.papers.report import broken_links

    place, suite = place_of(options.results, options.figures), suite_of(options)
    scales = _choose_scales(options, _scales_of(place.archive), place.archive)
    differs = False
    with TemporaryDirectory() as scratch:
        into = _new_folder(options.into) if options.into else Path(scratch)
        for scale in scales:
            drawn, lines = check(suite, scale, place, into)
            _tell(scale, None, drawn)
            site = drawn_place(into).archive / scale / "site"
            broken = list(broken_links(site))
            for line in (*lines, *broken):
                print(line)
            if lines and (versions := other_versions(scale, place)):
                print(f"drawn with other packages than those committed: {versions}")
            equal = f"all {len(place.kept(scale))} files are those committed"
            print(f"{scale}: {f'{len(lines)} files differ' if lines else equal}")
            differs |= bool(lines or broken)
        wrong = [*wrong_quotes_in(_pages(), scales, place, into), *outdated(_pages(), suite, place)]
    for line in wrong:
        print(line)
    if options.into:
        for scale in scales:
            print(f"drawn: {drawn_place(into).archive / scale / 'site/index.html'}")
    return 1 if differs or wrong else 0


def _pages() -> list[Path]:
    return [page for page in (Path("README.md"), *sorted(Path("docs").rglob("*.md"))) if page.exists()]


@verb(
    "compare two sets of results: runs, settings, values, verdicts; exit with 1 if they differ",
    CONFIGS, _SCALES, JSON,
    flag("--tolerance", type=_limit, default=1e-9, metavar="REL",
         help="relative difference up to which two values of a seed are equal (default: %(default)s)"),
    flag(
        "--spreads",
        type=_limit,
        default=0.0,
        metavar="K",
        help="also take the means of a series as equal if they differ by at most K standard deviations over seeds "
        "(default: none)",
    ),
    flag("--times", action="store_true", help="compare times too"),
    flag("sides", type=Path, nargs=2, metavar="SIDE", help="two folders of results or archives"),
)  # fmt: skip
def _diff(options: argparse.Namespace) -> int:
    from contextlib import ExitStack

    from resync.papers.archive.diff import Limits, compare, report
    from resync.papers.archive.unpack import opened

    limits = Limits(options.tolerance, options.spreads, options.times)
    with ExitStack() as stack:
        sides = [stack.enter_context(opened(or_archive(side))) for side in options.sides]
        present = [scale for scale in SCALES if any(_has_results(side, scale) for side in sides)]
        scales = _choose_scales(options, present, *options.sides)
        difference = compare(suite_of(options), sides, scales, limits)
    print(
        json_text(difference.as_dict()) if options.json else report(difference, [str(side) for side in options.sides])
    )
    return 1 if difference else 0


def _tell(scale: str, packed: Packed | None, drawn: Drawn) -> None:
    for line in packed.left_out if packed else ():
        print(f"resync: warning: left out: {line}", file=sys.stderr)
    for (paper, item), reason in drawn.absent.items():
        print(f"resync: not drawn: {paper} {item}: {reason}", file=sys.stderr)
    runs = f"{packed.count} runs, " if packed else ""
    print(f"{scale}: {runs}{len(drawn.items) - len(drawn.absent)} of {len(drawn.items)} figures and tables drawn")
    print(f"{scale}: {drawn.sentence}")


def _has_results(results: Path, scale: str) -> bool:
    return any(results.glob(f"{scale}/*/*/*/seed*/summary.json"))


def _scales_of(archive: Path) -> list[str]:
    from resync.papers.archive.unpack import scales_of

    return [scale for scale in SCALES if scale in scales_of(archive)]


def _choose_scales(options: argparse.Namespace, present: Sequence[str], *folders: Path) -> Sequence[str]:
    """The scales to work on. Raises ValueError without any."""
    where = " and ".join(map(str, folders))
    if not present:
        raise UserError(f"{where}: found no results, allowed: a folder of results or an archive")
    if options.scale and options.scale not in present:
        raise UserError(f"--scale {options.scale}: found no results in {where}, allowed: {', '.join(present)}")
    return [options.scale] if options.scale else present


def _new_folder(folder: Path) -> Path:
    """An absolute path. Raises ValueError if there are files."""
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"--into {folder}: has files, allowed: a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()

"""The results that the repository itself has: the archive `results/reference` with its figures `figures/reference`."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from resync.base.files import read_json
from resync.papers.archive.build import ENVIRONMENT, ArchiveFolders, build, drawn_place, replace_folder
from resync.papers.archive.certificates import read
from resync.papers.archive.environment import drawn_with
from resync.papers.archive.pack import Packed
from resync.papers.archive.page_quotes import wrong_quotes
from resync.papers.archive.redraw import Drawn, redraw
from resync.papers.archive.rounding import difference
from resync.papers.archive.unpack import unpack
from resync.papers.paper import Suite

NAME = "reference"


def place_of(results: Path, figures: Path) -> ArchiveFolders:
    """The place of the repository's own archive below its folders of results and figures."""
    return ArchiveFolders(results / NAME, figures / NAME)


def renew(suite: Suite, scale: str, results: Path, place: ArchiveFolders) -> tuple[Packed, Drawn]:
    """Pack the runs of `results` beside those that the archive has already, and draw everything from all of them.

    A run that both have is taken from `results`, and one that is of another configuration than the declared one is left
    out. The folders are replaced when all is done. Raises ValueError if there is no run.
    """
    with TemporaryDirectory() as folder:
        before, new = Path(folder, "before"), ArchiveFolders(Path(folder, "archive"), Path(folder, "figures"))
        unpack(place.archive, scale, before)
        made = build(suite, scale, [results, before], new, read(place.archive, scale))
        replace_folder(place.archive / scale, new.archive / scale)
        replace_folder(place.figures / scale, new.figures / scale)
    return made


def check(suite: Suite, scale: str, place: ArchiveFolders, into: Path) -> tuple[Drawn, list[str]]:
    """Draw everything of a scale again in a new folder; a line for each file that is not the committed one."""
    drawn = redraw(suite, scale, place.archive, into)
    return drawn, list(_differences(scale, place, drawn_place(into)))


def _differences(scale: str, committed: ArchiveFolders, drawn: ArchiveFolders) -> Iterator[str]:
    before, now = committed.kept(scale), drawn.kept(scale)
    for file in sorted(before | now):
        path = committed.path(scale, file)
        if file not in now:
            yield f"{path}: committed, and not drawn any more"
        elif file not in before:
            yield f"{path}: drawn, and not committed"
        elif change := difference(path, drawn.path(scale, file)):
            yield f"{path}: {change}"


def wrong_quotes_in(pages: Iterable[Path], scales: Iterable[str], place: ArchiveFolders, into: Path) -> list[str]:
    """A line for each quote of the pages that does not agree with the audits drawn in `into` by `check`."""
    audits = {
        scale: read_json(drawn_place(into).archive / scale / "audit.json")
        | {"environment": read_json(place.archive / scale / ENVIRONMENT)}
        for scale in scales
    }
    return list(wrong_quotes(pages, audits))


def other_versions(scale: str, place: ArchiveFolders) -> str:
    """How the packages here differ from those with which the committed files were drawn; empty if they do not."""
    then, now = read_json(place.archive / scale / ENVIRONMENT)["drawn_with"], drawn_with()
    return ", ".join(f"{name} {then.get(name)}, here {now[name]}" for name in now if then.get(name) != now[name])

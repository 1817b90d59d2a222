"""Links of a site that lead nowhere."""

import re
from collections.abc import Iterator
from functools import cache
from html import unescape
from os.path import normpath
from pathlib import Path
from urllib.parse import unquote

_LINK = re.compile(r'\b(?:href|src)="([^"]*)"')
_ID = re.compile(r'\bid="([^"]+)"')


def broken_links(site: Path) -> Iterator[str]:
    """A line for each link of the pages below a folder that leads to no file, or to no place of a page.

    What follows # with a `=` are the filters of a page, and no place. Addresses with a scheme are not visited.
    """

    @cache
    def ids(page: Path) -> set[str]:
        return set(map(unescape, _ID.findall(page.read_text(encoding="utf-8"))))

    exists = cache(Path.is_file)
    for page in sorted(site.rglob("*.html")):
        for link in sorted(set(map(unescape, _LINK.findall(page.read_text(encoding="utf-8"))))):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, place = link.partition("#")
            target = Path(normpath(page.parent / unquote(path))) if path else page
            if not exists(target):
                yield f"{page}: {link}: no such file"
            elif place and "=" not in place and unquote(place) not in ids(target):
                yield f"{page}: {link}: no such place"

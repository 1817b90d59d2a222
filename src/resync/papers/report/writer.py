"""Pages of a site: templates with a common frame, and links that hold wherever the site's folder lies."""

import posixpath
import re
from pathlib import Path, PurePosixPath
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

HERE = Path(__file__).parent
ASSETS = HERE / "assets"
_CODE_TAG_OR_SYMBOL = re.compile(r"<(title|script|style|code|option)\b.*?</\1>|<[^>]*>|H_base", re.DOTALL)
_H_BASE = '<span class="symbol"><i>H</i><span>_</span><sub>base</sub></span>'


class Writer:
    """Writes the pages below `folder`; `common` is what every template gets."""

    def __init__(self, folder: Path, **common: Any) -> None:
        self.folder = folder
        options: dict[str, Any] = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
        self.environment = Environment(loader=FileSystemLoader(HERE), undefined=StrictUndefined, **options)
        self.environment.globals |= common

    def page(self, path: str, template: str, **content: Any) -> None:
        """The page at `path` from `<template>.html.j2`, in which `to` makes a link from a path within the site."""
        base = str(PurePosixPath(path).parent)
        self.text(path, self.html(template, to=lambda target: posixpath.relpath(target, base), **content))

    def html(self, template: str, **content: Any) -> str:
        return _with_symbols(self.environment.get_template(f"{template}.html.j2").render(**content))

    def text(self, path: str, text: str) -> None:
        """A file of text. The site appears as a whole, so that a single file may be half-written."""
        self._write(path, text.encode())

    def copy(self, source: Path, path: str) -> None:
        self._write(path, source.read_bytes())

    def _write(self, path: str, content: bytes) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def _with_symbols(html: str) -> str:
    """The page with each `H_base` that is read, and not code or an attribute, as H with an index.

    Search and copies find `H_base` all the same.
    """
    return _CODE_TAG_OR_SYMBOL.sub(lambda match: _H_BASE if match[0] == "H_base" else match[0], html)

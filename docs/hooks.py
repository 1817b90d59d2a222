"""Hooks of mkdocs: the start page, the reference, and links to files that are no pages."""

import html
import json
import os
import re
from collections.abc import Iterator
from inspect import getdoc
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import resync
from resync.papers.paper.schema import schemas
from resync.runs.metrics.registry import METRICS
from resync.tools.cli import parser
from resync.workers.sync import options as algorithms

ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"(?<!!)\[(?!!)([^\]\n]+)\]\(((?!https?:|#|mailto:)[^)\s]+)\)")
_FILE = re.compile(r"(?<=\]\()((?!https?:)[^)\s#]+\.(?:png|svg|csv|tex|json)|[^)\s#]*figures/[^)\s#]+\.md)(?=\))")
"""A link to a picture, a table or data."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from something else, and the pictures and data of the repository that pages show."""
    pages = {
        "index.md": (ROOT / "README.md").read_text().replace("](docs/", "]("),
        "reference/cli.md": "\n".join(_command_line()),
        "reference/settings.md": "\n".join(_settings()),
        "reference/papers.md": "\n".join(_papers()),
        "reference/metrics.md": "\n".join(_metrics()),
        "reference/library.md": "\n".join(_library()),
    }
    written = {page.relative_to(ROOT / "docs").as_posix(): page.read_text() for page in (ROOT / "docs").rglob("*.md")}
    shown = {
        file
        for name, text in (pages | written).items()
        for found in _FILE.findall(text)
        if (file := (_origin(name) / found).resolve()).is_file() and not file.is_relative_to(ROOT / "docs")
    }
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    for file in sorted(shown):
        files.append(File.generated(config, file.relative_to(ROOT).as_posix(), abs_src_path=str(file)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links lead to where a file is in the site; those to files that are not in it become their text."""
    name = page.file.src_uri
    folder = (Path(config.docs_dir) / name).parent

    def placed(match: re.Match[str]) -> str:
        file = (_origin(name) / match[1]).resolve()
        inside = file.is_relative_to(ROOT) and files.get_file_from_path(file.relative_to(ROOT).as_posix()) is not None
        return os.path.relpath(file.relative_to(ROOT), Path(name).parent) if inside else match[1]

    def kept(match: re.Match[str]) -> str:
        target = match[2].partition("#")[0]
        if target == "../README.md":
            return match[0].replace("../README.md", "index.md")
        inside = (folder / target).resolve().is_relative_to(Path(config.docs_dir).resolve())
        is_there = inside and (not target or files.get_file_from_path(_relative(folder / target, config)) is not None)
        return match[0] if is_there else match[1]

    return _LINK.sub(kept, _FILE.sub(placed, markdown))


def _origin(name: str) -> Path:
    """The folder to which the links of a page are relative."""
    return ROOT if name == "index.md" else ROOT / "docs" / Path(name).parent


def _relative(path: Path, config: MkDocsConfig) -> str:
    return path.resolve().relative_to(Path(config.docs_dir).resolve()).as_posix()


def _command_line() -> Iterator[str]:
    """The help of every verb."""
    yield "# Command line\n"
    yield "The verbs of `resync`; `resync VERB --help` prints the same.\n"
    [verbs] = [action for action in parser()._actions if isinstance(action.choices, dict)]
    assert isinstance(verbs.choices, dict)
    for name, each in verbs.choices.items():
        yield f"## {name}\n\n```text\n{each.format_help().strip()}\n```\n"


def _settings() -> Iterator[str]:
    """Every key of a run, and of each component that a run chooses by its name."""
    schema = schemas()["run.schema.json"]
    yield "# Settings of a run\n"
    yield "Every key of an experiment's `base`, `series` and `scales`, from the declarations in the code.\n"
    yield from _keys("Run", schema)
    for name, each in sorted(schema["$defs"].items()):
        if each.get("properties"):
            yield from _keys(name, each)


def _papers() -> Iterator[str]:
    """Every key of the files that describe a paper; kinds of figure with their options."""
    yield "# Files of a paper\n"
    yield "Every key of the files in `paper_configs/<paper>`; an experiment has [settings of a run](settings.md).\n"
    for name in ("paper", "experiment", "published", "claims", "logs", "columns"):
        schema = schemas()[f"{name}.schema.json"]
        if schema.get("properties"):
            yield from _keys(f"{name}.yaml", schema)
        for part, each in sorted(schema["$defs"].items()) if name != "experiment" else ():
            if each.get("properties"):
                yield from _keys(part, each)


def _keys(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"## {name}\n"
    if said := schema.get("description"):
        yield f"{said.splitlines()[0]}\n"
    rows = [
        (
            key,
            _allowed(each),
            json.dumps(each["default"]) if "default" in each else "",
            each.get("description", ""),
        )
        for key, each in schema["properties"].items()
    ]
    yield from _table(("key", "allowed", "default", "meaning"), rows)


def _allowed(schema: dict[str, Any]) -> str:
    """What a key takes, in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(filter(None, map(_allowed, schema[key]))))
    if schema.get("type") == "array":
        return f"list of {_allowed(schema.get('items', {}))}".removesuffix(" of ")
    limits = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    return " ".join(
        [str(schema.get("type", "")), *(f"{sign} {schema[key]}" for key, sign in limits.items() if key in schema)]
    )


def _metrics() -> Iterator[str]:
    """Every number that a run records."""
    yield "# Metrics\n"
    yield f"The columns of `metrics.csv` and `steps.csv` and the numbers of `summary.json`: {len(METRICS)} in all.\n"
    rows = [
        (
            name, each.title, each.unit, ", ".join(each.files) or "the configuration",
            ", ".join(need.text for need in each.needs), each.meaning,
        )
        for name, each in METRICS.items()
    ]  # fmt: skip
    yield from _table(("name", "title", "unit", "in", "needs", "meaning"), rows)


def _library() -> Iterator[str]:
    """What `help` says of the library's names."""
    yield "# The library\n"
    yield "An algorithm is its options; `attach` attaches it to an optimizer: [library.md](../library.md).\n"
    for name in ("attach", "Synchronised", *algorithms.__all__):
        yield f"## {name}\n\n```text\n{getdoc(getattr(resync, name))}\n```\n"


def _table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    """The lines of a table of plain texts, the first column of which are names."""
    yield f"| {' | '.join(headings)} |"
    yield "| :-- " * len(headings) + "|"
    for name, *cells in rows:
        yield f"| <code>{_plain(name)}</code> | {' | '.join(map(_plain, cells))} |"
    yield ""


def _plain(text: str) -> str:
    """Text without anything that Markdown or HTML would read."""
    return re.sub(r"[|*`\[\]]", lambda found: f"&#{ord(found[0])};", html.escape(" ".join(text.split())))

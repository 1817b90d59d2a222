"""Hooks of mkdocs: the start page, the reference, and links to files that are no pages."""

import ast
import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from resync.cli import parser
from resync.config.metrics import METRICS
from resync.config.schema import schemas

ROOT = Path(__file__).parents[1]
_PICTURE = re.compile(r"(!\[[^\]\n]*\])\(((?!https?:)[^)\s]+)\)")
_LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\(((?!https?:|#|mailto:)[^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from something else."""
    pages = {
        "index.md": (ROOT / "README.md").read_text().replace("](docs/", "]("),
        "reference/cli.md": "\n".join(_command_line()),
        "reference/settings.md": "\n".join(_settings()),
        "reference/papers.md": "\n".join(_papers()),
        "reference/metrics.md": "\n".join(_metrics()),
        "reference/library.md": "\n".join(_library()),
    }
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    for file in list(files.documentation_pages()):
        for _, name in _PICTURE.findall(file.content_string):
            if (path := _outside(name, file, config)) and not files.get_file_from_path(path):
                files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def _outside(name: str, file: File, config: MkDocsConfig) -> str | None:
    """Where in the repository a picture is that a page shows, if it is not below docs/."""
    docs = Path(config.docs_dir)
    folder = ROOT if file.src_uri == "index.md" else (docs / file.src_uri).parent
    path = (folder / name).resolve()
    inside = path.is_relative_to(docs.resolve()) or (file.src_uri == "index.md" and (docs / name).is_file())
    return None if inside else path.relative_to(ROOT).as_posix()


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Adapt links to a site that has no repository beside it: pictures come along, of other files the text is left."""

    def shown(match: re.Match[str]) -> str:
        path = _outside(match[2], page.file, config)
        return f"{match[1]}({'../' * page.file.src_uri.count('/')}{path})" if path else match[0]

    markdown = _PICTURE.sub(shown, markdown)
    folder = (Path(config.docs_dir) / page.file.src_uri).parent

    def kept(match: re.Match[str]) -> str:
        name = match[2].partition("#")[0]
        if name == "../README.md":
            return match[0].replace("../README.md", "index.md")
        inside = (folder / name).resolve().is_relative_to(Path(config.docs_dir).resolve())
        is_page = inside and (not name or files.get_file_from_path(_relative(folder / name, config)) is not None)
        return match[0] if is_page else match[1]

    return _LINK.sub(kept, markdown)


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
        (name, each.title, each.unit, ", ".join(each.files) or "the configuration", each.meaning)
        for name, each in METRICS.items()
    ]
    yield from _table(("name", "title", "unit", "in", "meaning"), rows)


def _library() -> Iterator[str]:
    """The functions of the library with their docstrings, from the file that editors read."""
    yield "# Functions of the library\n"
    yield "Each attaches an algorithm to a model and its optimizer: [library.md](../library.md).\n"
    for node in ast.parse((ROOT / "src/resync/__init__.pyi").read_text()).body:
        if isinstance(node, ast.FunctionDef):
            signature = ast.unparse(ast.FunctionDef(**{**node.__dict__, "body": [ast.Expr(ast.Constant(...))]}))
            yield f"## {node.name}\n\n```python\n{signature}\n```\n\n```text\n{ast.get_docstring(node)}\n```\n"


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

"""Verbs for a start: what this machine has, and something new, which begins as an example of the documentation."""

from __future__ import annotations

import argparse
import keyword
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from resync.base.errors import UserError
from resync.base.settings.errors import closest
from resync.base.text_tables import json_text
from resync.tools.cli.declare import CONFIGS, JSON, RESULTS, flag, verb

_FILES = re.compile(r"^`((?:src|paper_configs)/[\w./]+)`\n\n```\w+\n(.*?)```", re.MULTILINE | re.DOTALL)
"""The complete files of a page of docs/: the name, then the content."""

_DOCSTRING = re.compile(r'(^class [^\n]+:\n    """)[^"]+', re.MULTILINE)
"""The docstring of a class of an example."""
_FILL_IN = r"\1FILL IN: what it does, in a sentence or with its equations, and who published it."


class _Example(NamedTuple):
    """Where the documentation has the example: the page, its name there, the files that belong to it, what is next."""

    page: str
    name: str
    files: str
    next: str


_EXAMPLES = {
    "algorithm": _Example(
        "docs/extend.md", "pull", r"src/resync/workers/sync/",
        "write the step and say in `traffic` what it sends; `pytest tests/training -k {name}` has the tests that it "
        "must pass; name it in a series: sync: {{name: {name}}}",
    ),
    "model": _Example(
        "docs/extend.md", "logistic", r"src/resync/tasks/models/",
        "write the module; name it in a series: model: {{name: {name}}}",
    ),
    "figure": _Example(
        "docs/extend.md", "final_bars", r"src/resync/papers/render/", "draw; name it in a paper.yaml: kind: {name}",
    ),
    "paper": _Example(
        "docs/own_experiment.md", "question", r"paper_configs/",
        "write your question; resync run {name}",
    ),
    "experiment": _Example(
        "docs/own_experiment.md", "periods", r"paper_configs/question/experiments/",
        "name it in the list `series` of a figure or table of the paper",
    ),
}  # fmt: skip


@verb(
    "list what this machine has and what is missing, with how to get it; exit with 1 if no run could be trained",
    CONFIGS, RESULTS, JSON,
)  # fmt: skip
def _doctor(options: argparse.Namespace) -> int:
    from resync.tools.doctor import examine

    findings = []
    for finding in examine(options.configs, options.results):
        findings.append(finding)
        if not options.json:
            print(finding, flush=True)
    if options.json:
        print(json_text([asdict(item) for item in findings]))
    return 1 if any(item.state == "needed" for item in findings) else 0


@verb(
    "start a paper, an experiment, an algorithm, a model or a kind of figure from a working example",
    flag("kind", choices=tuple(_EXAMPLES), help="what to start"),
    flag("name", help="its name, in lower case, or that of its class; for an experiment paper/name"),
)
def _new(options: argparse.Namespace) -> None:
    example = _EXAMPLES[options.kind]
    paper, _, given = options.name.rpartition("/")
    component = options.kind in ("algorithm", "model", "figure")
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", given).lower() if component else given
    _refuse(options.kind, paper, name)
    texts = _rename(example, paper, name, _camel(name) if given == name else given)
    if there := [file for file in texts if file.exists()]:
        raise UserError(f"{there[0]}: exists, allowed: another name")
    for file, text in texts.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_DOCSTRING.sub(_FILL_IN, text) if component else text, encoding="utf-8")
        print(file)
    if component:
        # In a process of its own: this one may have looked for components already.
        subprocess.run([sys.executable, "-m", "resync", "schema"], check=True)
    print(f"next: {example.next.format(name=name)}")


def _refuse(kind: str, paper: str, name: str) -> None:
    """Raise ValueError for a name that cannot be one, and for a folder that is no clone."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise UserError(f"name: found {name!r}, allowed: lower-case letters, digits and _, no keyword of Python")
    if bool(paper) != (kind == "experiment"):
        form = "paper/name" if kind == "experiment" else "a name without /"
        given = f"{paper}/{name}" if paper else name
        raise UserError(f"name: found {given!r}, allowed for {kind}: {form}")
    if paper and not Path("paper_configs", paper, "paper.yaml").is_file():
        known = [folder.parent.name for folder in Path("paper_configs").glob("*/paper.yaml")]
        similar = closest(paper, known)
        raise UserError(f"paper_configs/{paper}: no such paper{f'; did you mean {similar!r}?' if similar else ''}")
    if not Path("src/resync").is_dir():
        raise UserError("src/resync: not here: start in a clone of the repository, whose files this adds to")


def _rename(example: _Example, paper: str, name: str, class_name: str) -> dict[Path, str]:
    files = _FILES.findall(Path(example.page).read_text(encoding="utf-8"))
    # Not torch's own names, such as nn.Linear.
    words = {example.name: name, _camel(example.name): class_name} | ({"question": paper} if paper else {})
    pattern = re.compile(rf"(?<!nn\.)(?<![A-Za-z0-9_])({'|'.join(words)})(?![A-Za-z0-9_])")

    def renamed(text: str) -> str:
        return pattern.sub(lambda match: words[match[1]], text)

    return {Path(renamed(file)): renamed(text) for file, text in files if file.startswith(example.files)}


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))

"""An archive as a Workflow Run RO-Crate: a folder that says what is in it, who made it and how, and its licence.

Follows RO-Crate 1.1 (https://w3id.org/ro/crate/1.1) and the profiles Process Run Crate and Workflow Run Crate 0.5
(https://w3id.org/ro/wfrun/workflow/0.5): the workflow is the Snakefile, and each scale one execution of it.
"""

import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from resync.archive.build import ENVIRONMENT, Place, build, replace_folder
from resync.archive.pack import Packed
from resync.archive.redraw import Drawn
from resync.config import Suite
from resync.config.run import SCALES
from resync.files import read_json, write_text
from resync.results.summary import digest_of

METADATA = "ro-crate-metadata.json"
_PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": "Process Run Crate",
    "https://w3id.org/ro/wfrun/workflow/0.5": "Workflow Run Crate",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": "Workflow RO-Crate",
}
_SNAKEMAKE = "https://w3id.org/workflowhub/workflow-ro-crate#snakemake"
_WORKFLOW, _RULES, _CONFIGS = "Snakefile", "workflow/rules", "paper_configs"
_COPIED = (_WORKFLOW, "LICENSE", "CITATION.cff", "environment.yml", "requirements.lock")
_FORMATS = {
    ".xz": "application/x-xz",
    ".json": "application/json",
    ".md": "text/markdown",
    ".csv": "text/csv",
    ".tex": "application/x-tex",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".yml": "application/yaml",
}

Entity = dict[str, Any]


@dataclass(frozen=True)
class Terms:
    """What its owner says of a crate: SPDX identifier of the licence, authors as `Name` or `Name (ORCID)`."""

    licence: str
    authors: tuple[str, ...]

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.+-]*", self.licence):
            raise ValueError(f"--licence {self.licence}: allowed: an identifier of https://spdx.org/licenses")

    @property
    def people(self) -> list[Entity]:
        """The authors as entities; one with an ORCID is identified by it."""
        found = []
        for number, author in enumerate(self.authors, 1):
            name, orcid = re.fullmatch(r"(.*?)(?:\s*\((\d{4}-\d{4}-\d{4}-\d{3}[\dX])\))?", author).groups()  # type: ignore[union-attr]
            found.append({
                "@id": f"https://orcid.org/{orcid}" if orcid else f"#author-{number}",
                "@type": "Person",
                "name": name,
            })  # fmt: skip
        return found


def archive(
    suite: Suite, scales: Sequence[str], results: Path, repository: Path, configs: Path, out: Path, terms: Terms
) -> dict[str, tuple[Packed, Drawn]]:
    """Write the runs of some scales, and what is drawn from them, as a crate in the new folder `out`.

    The workflow is copied from `repository`, the configuration from `configs`. Raises ValueError if `out` has files, or
    if no run of a scale has ended.
    """
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"--out {out}: has files, allowed: a new folder")
    if lacking := [name for name in (*_COPIED, _RULES) if not (repository / name).exists()]:
        raise ValueError(f"{repository / lacking[0]}: missing, allowed: to be called in a checkout of resync")
    with TemporaryDirectory() as folder:
        crate = Path(folder)
        place = Place(crate / "results", crate / "figures")
        made = {scale: build(suite, scale, [results], place) for scale in scales}
        for name in _COPIED:
            shutil.copy(repository / name, crate / name)
        for source, name in ((repository / _RULES, _RULES), (configs, _CONFIGS)):
            shutil.copytree(source, crate / name, ignore=shutil.ignore_patterns("__pycache__"))
        write_text(crate / "README.md", _readme(suite, made))
        write_text(
            crate / METADATA, json.dumps(_metadata(suite, made, crate, terms), indent=2, ensure_ascii=False) + "\n"
        )
        replace_folder(out, crate)
    return made


def _readme(suite: Suite, made: Mapping[str, tuple[Packed, Drawn]]) -> str:
    lines = [f"# {_title(suite, made)}", ""]
    for scale, (packed, drawn) in made.items():
        lines += [f"* {scale} scale, {packed.count} runs: {drawn.sentence} [Figures and tables](figures/{scale}/)"]
    return "\n".join([
        *lines,
        "",
        "`results/<scale>/<paper>/runs.tar.xz` has the runs: their settings, summaries and tables. With resync",
        "installed, this draws all figures, tables, audits and pages again, without training, and writes every run",
        "as a folder:",
        "",
        "    resync redraw . --into DIR",
        "",
    ])  # fmt: skip


def _title(suite: Suite, made: Mapping[str, tuple[Packed, Drawn]]) -> str:
    papers = [paper for paper in suite.papers if any(paper in packed.runs for packed, _ in made.values())]
    return f"Results of resync: {', '.join(papers)}"


def _metadata(suite: Suite, made: Mapping[str, tuple[Packed, Drawn]], crate: Path, terms: Terms) -> Entity:
    files = sorted(file for file in crate.rglob("*") if file.is_file())
    listed = [_file(crate, file) for file in files if file.relative_to(crate).parts[0] not in (_CONFIGS, "workflow")]
    environments = {scale: read_json(crate / "results" / scale / ENVIRONMENT) for scale in made}
    versions = sorted({each for found in environments.values() for each in found["versions"].get("resync", [])})
    people, citations = terms.people, _citations(suite)
    licence = f"https://spdx.org/licenses/{terms.licence}"
    actions = [_action(scale, environments[scale], packed, listed, people) for scale, (packed, _) in made.items()]
    settings = [
        {
            "@id": f"#scale-{scale}",
            "@type": "PropertyValue",
            "name": "scale",
            "value": scale,
            "exampleOfWork": {"@id": "#scale"},
        }
        for scale in made
    ]
    folders = [
        {"@id": f"{_CONFIGS}/", "@type": "Dataset", "name": "settings, published values and claims of the papers"},
        {"@id": f"{_RULES}/", "@type": "Dataset", "name": "rules of the workflow"},
    ]
    workflow = next(entity for entity in listed if entity["@id"] == _WORKFLOW)
    workflow |= {
        "@type": ["File", "SoftwareSourceCode", "ComputationalWorkflow"],
        "name": "from configurations to figures, tables and audits",
        "programmingLanguage": {"@id": _SNAKEMAKE},
        "softwareRequirements": {"@id": "#resync"},
        "hasPart": {"@id": f"{_RULES}/"},
        "input": {"@id": "#scale"},
    }
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": _title(suite, made),
        "description": " ".join(f"{scale} scale: {drawn.sentence}" for scale, (_, drawn) in made.items()),
        "datePublished": max(filter(None, (found["last_ended"] for found in environments.values())), default="")[:10],
        "license": {"@id": licence},
        "conformsTo": _ids(_PROFILES),
        "hasPart": _ids(entity["@id"] for entity in (*listed, *folders) if entity["@id"] != METADATA),
        "mainEntity": {"@id": _WORKFLOW},
        "mentions": _ids(action["@id"] for action in actions),
        "citation": _ids(["#resync", *(each["@id"] for each in citations)]),
    }
    if people:
        root["author"] = _ids(person["@id"] for person in people)
    about = {
        "@id": METADATA,
        "@type": "CreativeWork",
        "about": {"@id": "./"},
        "conformsTo": _ids(["https://w3id.org/ro/crate/1.1", "https://w3id.org/workflowhub/workflow-ro-crate/1.0"]),
    }
    graph = [
        about,
        root,
        *_context_entities(licence, terms, versions),
        *people,
        *citations,
        *actions,
        *settings,
        *folders,
    ]
    context = ["https://w3id.org/ro/crate/1.1/context", "https://w3id.org/ro/terms/workflow-run/context"]
    return {"@context": context, "@graph": [*graph, *listed]}


def _context_entities(licence: str, terms: Terms, versions: Sequence[str]) -> list[Entity]:
    """The entities that are no part of the crate: licence, profiles, Snakemake, resync, the workflow's parameter."""
    return [
        {"@id": licence, "@type": "CreativeWork", "name": terms.licence, "url": f"{licence}.html"},
        *(
            {"@id": url, "@type": "CreativeWork", "name": name, "version": url.rpartition("/")[2]}
            for url, name in _PROFILES.items()
        ),
        {
            "@id": _SNAKEMAKE,
            "@type": "ComputerLanguage",
            "name": "Snakemake",
            "url": {"@id": "https://snakemake.github.io"},
        },
        {
            "@id": "#resync",
            "@type": "SoftwareApplication",
            "name": "resync",
            "softwareVersion": ", ".join(versions),
            "description": "how to cite it: CITATION.cff",
        },
        {
            "@id": "#scale",
            "@type": "FormalParameter",
            "additionalType": "Text",
            "name": "scale",
            "description": f"what is trained: {', '.join(SCALES)} (snakemake --config scale=...)",
        },
    ]


def _action(
    scale: str, found: Mapping[str, Any], packed: Packed, files: Iterable[Entity], people: Sequence[Entity]
) -> Entity:
    """The execution of the workflow at a scale, from the first start of a run to the last end of one."""
    devices, commits = (", ".join(found[name]) or "not known" for name in ("devices", "commits"))
    made = [entity["@id"] for entity in files if entity["@id"].startswith((f"results/{scale}/", f"figures/{scale}/"))]
    action = {
        "@id": f"#run-{scale}",
        "@type": "CreateAction",
        "name": f"{packed.count} runs at {scale} scale",
        "description": f"snakemake --config scale={scale}; devices: {devices}; commits: {commits}",
        "instrument": {"@id": _WORKFLOW},
        "object": _ids([f"{_CONFIGS}/", f"#scale-{scale}"]),
        "result": _ids(made),
        "actionStatus": {"@id": "http://schema.org/CompletedActionStatus"},
    }
    times = {"startTime": found["first_started"], "endTime": found["last_ended"]}
    action |= {name: time for name, time in times.items() if time}
    return action | ({"agent": _ids(person["@id"] for person in people)} if people else {})


def _citations(suite: Suite) -> list[Entity]:
    return [
        {
            "@id": f"https://arxiv.org/abs/{paper.arxiv}" if paper.arxiv else f"#{paper.id}",
            "@type": "ScholarlyArticle",
            "name": paper.title,
            "creditText": f"{', '.join(paper.authors)}: {paper.title}. {paper.venue}",
        }
        for paper in suite.papers.values()
    ]


def _file(crate: Path, file: Path) -> Entity:
    name = file.relative_to(crate).as_posix()
    entity: Entity = {"@id": quote(name), "@type": "File", "name": name}
    entity |= {"contentSize": str(file.stat().st_size), "sha256": digest_of(file)}
    return entity | ({"encodingFormat": _FORMATS[file.suffix]} if file.suffix in _FORMATS else {})


def _ids(names: Iterable[str]) -> list[Entity]:
    return [{"@id": name} for name in names]

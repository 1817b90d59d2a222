"""An archive as a Workflow Run RO-Crate: a folder that says what is in it, who made it and how, and its licence.

Follows RO-Crate 1.1 (https://w3id.org/ro/crate/1.1) and the profiles Process Run Crate and Workflow Run Crate 0.5
(https://w3id.org/ro/wfrun/workflow/0.5): the workflow is the Snakefile, and each scale one execution of it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from mimetypes import guess_type
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rocrate.model import ContextEntity, Person
from rocrate.rocrate import ROCrate

from resync.base.errors import UserError
from resync.base.files import read_json
from resync.papers.archive.build import ENVIRONMENT, ArchiveFolders, build, replace_folder
from resync.papers.archive.pack import Packed
from resync.papers.archive.redraw import Drawn
from resync.papers.paper import Suite
from resync.runs.results.summary import digest_of
from resync.runs.run.run import SCALES

_PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": "Process Run Crate",
    "https://w3id.org/ro/wfrun/workflow/0.5": "Workflow Run Crate",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": "Workflow RO-Crate",
}
_WORKFLOW, _RULES, _CONFIGS = "Snakefile", "workflow/rules", "paper_configs"
_COPIED = ("LICENSE", "CITATION.cff", "environment.yml", "requirements.lock")

Made = Mapping[str, tuple[Packed, Drawn]]
"""What was packed and drawn at each scale."""


@dataclass(frozen=True)
class Terms:
    """What its owner says of a crate: SPDX identifier of the licence, authors as `Name` or `Name (ORCID)`."""

    licence: str
    authors: tuple[str, ...]

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.+-]*", self.licence):
            raise UserError(f"--licence {self.licence}: allowed: an identifier of https://spdx.org/licenses")


def archive(
    suite: Suite, scales: Sequence[str], results: Path, repository: Path, configs: Path, out: Path, terms: Terms
) -> Made:
    """Write the runs of some scales, and what is drawn from them, as a crate in the new folder `out`.

    The workflow is copied from `repository`, the configuration from `configs`. Raises ValueError if `out` has files, or
    if no run of a scale has ended.
    """
    if out.exists() and any(out.iterdir()):
        raise UserError(f"--out {out}: has files, allowed: a new folder")
    if lacking := [name for name in (_WORKFLOW, _RULES, *_COPIED) if not (repository / name).exists()]:
        raise UserError(f"{repository / lacking[0]}: missing, allowed: to be called in a checkout of resync")
    with TemporaryDirectory() as folder:
        built = Path(folder, "built")
        made = {
            scale: build(suite, scale, [results], ArchiveFolders(built / "results", built / "figures"))
            for scale in scales
        }
        crate = ROCrate(version="1.1")
        crate.metadata.extra_contexts.append("https://w3id.org/ro/terms/workflow-run/context")
        sources = {file.relative_to(built).as_posix(): file for file in sorted(built.rglob("*")) if file.is_file()}
        for name, file in ({name: repository / name for name in _COPIED} | sources).items():
            properties = {"name": name, "sha256": digest_of(file), "encodingFormat": guess_type(name)[0]}
            known = {key: value for key, value in properties.items() if value}
            crate.add_file(file, name, record_size=True, properties=known)
        environments = {scale: read_json(built / "results" / scale / ENVIRONMENT) for scale in made}
        _describe(crate, suite, made, environments, terms)
        _describe_runs(crate, repository, configs, made, environments)
        crate.write(Path(folder, "crate"))
        replace_folder(out, Path(folder, "crate"))
    return made


def _describe(crate: ROCrate, suite: Suite, made: Made, environments: Mapping[str, Any], terms: Terms) -> None:
    licence = f"https://spdx.org/licenses/{terms.licence}"
    papers = [paper for paper in suite.papers if any(paper in packed.runs for packed, _ in made.values())]
    sentences = [f"{scale} scale: {drawn.sentence}" for scale, (_, drawn) in made.items()]
    crate.name = f"Results of resync: {', '.join(papers)}"
    crate.description = " ".join([*sentences, "`resync redraw . --into DIR` draws all of it again from the runs."])
    crate.datePublished = max(filter(None, (record["last_ended"] for record in environments.values())), default="")[:10]
    crate.license = _add(crate, licence, "CreativeWork", name=terms.licence, url=f"{licence}.html")
    crate.root_dataset["conformsTo"] = [
        _add(crate, url, "CreativeWork", name=name, version=url.rpartition("/")[2]) for url, name in _PROFILES.items()
    ]
    people = []
    for number, author in enumerate(terms.authors, 1):
        name, orcid = re.fullmatch(r"(.*?)(?:\s*\((\d{4}-\d{4}-\d{4}-\d{3}[\dX])\))?", author).groups()  # type: ignore[union-attr]
        identifier = f"https://orcid.org/{orcid}" if orcid else f"#author-{number}"
        people.append(crate.add(Person(crate, identifier, properties={"name": name})))
    if people:
        crate.root_dataset["author"] = people
    versions = {version for record in environments.values() for version in record["versions"].get("resync", [])}
    software = {"softwareVersion": ", ".join(sorted(versions)), "description": "how to cite it: CITATION.cff"}
    crate.root_dataset["citation"] = [_add(crate, "#resync", "SoftwareApplication", name="resync", **software)] + [
        _add(
            crate,
            f"https://arxiv.org/abs/{paper.arxiv}" if paper.arxiv else f"#{paper.id}",
            "ScholarlyArticle",
            name=paper.title,
            creditText=": ".join(filter(None, [", ".join(paper.authors), f"{paper.title}. {paper.venue}".strip()])),
        )
        for paper in suite.papers.values()
    ]


def _describe_runs(
    crate: ROCrate, repository: Path, configs: Path, made: Made, environments: Mapping[str, Any]
) -> None:
    workflow = crate.add_workflow(repository / _WORKFLOW, _WORKFLOW, main=True, lang="snakemake", record_size=True)
    workflow["name"] = "from configurations to figures, tables and audits"
    workflow["sha256"] = digest_of(repository / _WORKFLOW)
    workflow["softwareRequirements"] = crate.get("#resync")
    workflow["hasPart"] = [crate.add_dataset(repository / _RULES, _RULES, properties={"name": "rules of the workflow"})]
    settings = {"name": "settings, published values and claims of the papers"}
    folder = crate.add_dataset(configs, _CONFIGS, properties=settings)
    parameter = crate.add_formal_parameter("scale", "Text", "#scale", description=f"one of {', '.join(SCALES)}")
    workflow["input"] = [parameter]
    for scale, (packed, _) in made.items():
        environment = environments[scale]
        devices, commits = (", ".join(environment[name]) or "not known" for name in ("devices", "commits"))
        properties = {
            "name": f"{packed.count} runs at {scale} scale",
            "description": f"snakemake --config scale={scale}; devices: {devices}; commits: {commits}",
            "actionStatus": {"@id": "http://schema.org/CompletedActionStatus"},
            "startTime": environment["first_started"],
            "endTime": environment["last_ended"],
            "agent": crate.root_dataset.get("author"),
        }
        value = _add(crate, f"#scale-{scale}", "PropertyValue", name="scale", value=scale, exampleOfWork=parameter)
        folders = (f"results/{scale}/", f"figures/{scale}/")
        results = [entity for entity in crate.data_entities if entity.id.startswith(folders)]
        known = {name: entry for name, entry in properties.items() if entry}
        action = crate.add_action(workflow, f"#run-{scale}", object=[folder, value], result=results, properties=known)
        crate.root_dataset.append_to("mentions", action)


def _add(crate: ROCrate, identifier: str, kind: str, **properties: Any) -> ContextEntity:
    return crate.add(ContextEntity(crate, identifier, properties={"@type": kind, **properties}))

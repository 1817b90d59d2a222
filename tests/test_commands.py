"""Every complete command line of the documentation is one that its program accepts."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from resync.runs.run.run import SCALES
from resync.tools.cli import parser
from resync.tools.cli.declare import VERBS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "workflow/profiles/README.md"]
PROGRAMS = ("resync", "snakemake", "make")


def commands() -> Iterator[tuple[str, str]]:
    """(page, command): lines of shell blocks, and code in the text with at least one argument."""
    for page in PAGES:
        text = page.read_text()
        blocks = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
        inline = [code for code in re.findall(r"`([^`\n]+)`", text) if " " in code]
        for line in [*blocks, *inline]:
            for part in line.replace("$run", "--run a/b/c/seed0").split("&&"):
                program, *arguments = shlex.split(part, comments=True) or [""]
                if program in PROGRAMS and not any(re.search(r"\.\.\.|[<>]", argument) for argument in arguments):
                    yield page.name, shlex.join([program, *arguments])


FOUND = sorted(set(commands()))


def test_commands_are_found():
    assert len(FOUND) > 30
    assert {command.split()[0] for _, command in FOUND} == set(PROGRAMS)


@pytest.mark.parametrize(("page", "command"), FOUND, ids=lambda text: text.replace("/", "_"))
def test_a_command_is_accepted(page: str, command: str, monkeypatch: pytest.MonkeyPatch):
    program, *arguments = shlex.split(command)
    if program == "resync":
        if len(arguments) == 1 or arguments[1:] == ["check"]:
            assert arguments[0] in (*VERBS, "--help"), command  # the name of a verb in a sentence
            return
        try:
            parser().parse_args(arguments)
        except SystemExit:
            pytest.fail(f"{page}: {command}")
    elif program == "make":
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        assert {argument for argument in arguments if "=" not in argument} <= targets
    else:
        _check_snakemake(arguments, monkeypatch)


def _check_snakemake(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The flags, the configuration and the targets; whether a file can be made is for the tests of the DAG."""
    from snakemake.cli import parse_args, parse_config

    monkeypatch.chdir(ROOT)
    if "slurm" in arguments:
        reason = "the Slurm executor is not installed: pip install '.[slurm]'"
        pytest.importorskip("snakemake_executor_plugin_slurm", reason=reason)
    _, options = parse_args(arguments)
    assert parse_config(options.config).get("scale", "smoke") in SCALES
    rules = re.findall(
        r"^rule (\w+):", "".join(file.read_text() for file in ROOT.glob("workflow/**/*.smk")), re.MULTILINE
    )
    papers = [folder.name for folder in (ROOT / "paper_configs").iterdir() if folder.is_dir()]
    papers += [command.split()[-1] for _, command in FOUND if command.startswith("resync new paper ")]
    for target in options.targets:
        assert target in {*rules, *papers} or target.startswith(("figures/", "results/")), target

"""Every block of code in README and docs is run by a test, or stands here with the reason why it is not."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from resync.tools.cli import main

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", "PACKAGE.md", "CONTRIBUTING.md", "docs/**/*.md", "workflow/profiles/*.md"]
OUTPUT = ("", "text")
"""The languages of blocks that show what a program prints, or a picture made of letters."""
RUN = {
    "README.md: git clone": ".ci/run",
    "README.md: import resync": "tests/training/test_documentation.py",
    "PACKAGE.md: import torch": "tests/training/test_documentation.py",
    "docs/cost.md: resync plan": "tests/test_code_blocks.py",
    "docs/data.md: # src/resync/tasks/data/leaves.yaml": "tests/training/test_new_data_set.py",
    "docs/extend.md: ": "tests/training/test_extension.py",
    "docs/extend.md: --- a/src/resync/runs/metrics/registry.py": "tests/training/test_new_metric.py",
    "docs/library.md: import torch": "tests/training/test_documentation.py",
    "docs/own_experiment.md: # yaml-language-server": "tests/test_doctor_and_new.py",
    "docs/own_experiment.md: resync new algorithm": "tests/test_doctor_and_new.py",
    "docs/trainers.md: --- a/": "tests/training/test_documentation.py",
    "docs/trainers.md: ": "tests/training/test_integrations.py",
}
"""`page: how the block begins`, and the file that runs it as it stands."""
NOT_RUN = {
    "README.md: source .venv/bin/activate": "downloads data, and draws what make report-reference draws",
    "docs/cluster.md: workers: 32": "needs 32 nodes of 8 GPUs",
    "docs/cluster.md: seeds=": "needs a cluster",
    "docs/cluster.md: for n in 0 1": "needs several machines",
    "docs/cost.md: times:": "a part of paper.yaml",
    "docs/cost.md: clock:": "a part of an experiment",
    "docs/data.md: export RESYNC_DATA": "downloads data",
    "docs/data.md: resync data prepare": "needs CIFAR-10",
    "docs/data.md: apt-get install": "installs programs, as .ci/run does",
    "docs/data.md: start_from:": "needs a downloaded checkpoint",
    "docs/evidence.md: # experiments/after_decay.yaml": "a part of an experiment",
    "docs/evidence.md: # claims.yaml": "a claim on series that are not declared",
    "docs/evidence.md: scales:": "a part of an experiment",
    "docs/evidence.md:   expected:": "a part of a claim",
    "docs/own_experiment.md: source .venv/bin/activate": "makes files in the repository; tests do so in a copy",
    "docs/own_experiment.md: resync list question": "trains in the repository; tests do so in a copy",
    "docs/publish.md: resync archive": "needs the runs of paper scale",
    "docs/publish.md: make report-reference": "takes minutes; tests/test_reference.py compares the same files",
    "docs/publish.md: resync diff": "needs results of one's own",
    "docs/publish.md: run=": "needs logs of others",
    "docs/publish.md: resync import": "needs logs of others",
    "docs/publish.md: One peer beats": "numbers of the archive, which tests/test_reference.py compares",
    "workflow/profiles/README.md: snakemake": "needs a cluster",
}
"""The reason why no test runs a block; tests/test_commands.py checks the flags of its commands all the same."""


def blocks() -> Iterator[tuple[str, str]]:
    """(page: first line, text) of every block of code."""
    for page in (page for pattern in PAGES for page in sorted(ROOT.glob(pattern))):
        for language, text in re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
            if language not in OUTPUT:
                yield f"{page.relative_to(ROOT)}: {text.splitlines()[0]}", text


BLOCKS = dict(blocks())


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_is_run_or_has_a_reason(block: str):
    run, not_run = ([begin for begin in known if block.startswith(begin)] for known in (RUN, NOT_RUN))
    assert bool(run) != bool(not_run)
    for begin in run:
        assert (ROOT / RUN[begin]).is_file()


def test_no_reason_outlives_its_block():
    assert [begin for begin in (*RUN, *NOT_RUN) if not any(block.startswith(begin) for block in BLOCKS)] == []


def test_the_commands_about_costs_work(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(ROOT)
    [text] = [text for block, text in BLOCKS.items() if block.startswith("docs/cost.md: resync plan")]
    for line in text.splitlines():
        assert main(shlex.split(line, comments=True)[1:]) == 0, line
        assert len(capsys.readouterr().out.splitlines()) > 3

"""What Snakemake with the local profile prints of a run that fails."""

from pathlib import Path

RUN = "qsr/two_processes/h4/seed0"
MISTAKEN = """
import sys

with open("attempts", "a") as file:
    file.write(sys.argv[sys.argv.index("--attempt") + 1])
print("resync: error: no data", file=sys.stderr)
sys.exit(2)
"""


def test_a_failure_is_one_line_with_its_reason_and_every_attempt_has_its_number(workflow):
    (workflow.directory / "src/resync/__main__.py").write_text(MISTAKEN)
    code, said = workflow.attempt(f"results/smoke/{RUN}/summary.json")
    assert code == 1
    assert Path(workflow.directory, "attempts").read_text() == "123"
    failure = f"failed: {RUN}: no data (log: results/smoke/{RUN}/train.log)"
    again = f"tried again: {RUN}"
    lines = said.splitlines()
    assert [line for line in lines if RUN in line] == [failure, again, again, failure]
    assert lines[-2:] == [lines[-2], failure]
    assert ", 1 failed, 0:" in lines[-2]
    assert "CalledProcessError" not in said

"""What Snakemake with the local profile prints of a run that fails."""

RUN = "qsr/two_processes/h4/seed0"
ATTEMPTS = "src/resync/runs/launch/attempts.py"
MISTAKE = 'raise UserError(f"no data in attempt {request.attempt}")'


def test_every_failure_is_one_line_with_the_reason_of_its_attempt(workflow):
    workflow.edit(ATTEMPTS, r"run = request\.run\n", f"{MISTAKE}\n")
    code, said = workflow.attempt(f"results/smoke/{RUN}/summary.json")
    assert code == 1
    failures = [f"failed: {RUN}: no data in attempt {n} (log: results/smoke/{RUN}/train.{n}.log)" for n in (1, 2, 3)]
    again = f"tried again: {RUN}"
    lines = said.splitlines()
    named = [line for line in lines if RUN in line and "; running: " not in line]  # as is said every half minute
    assert [line for line in named if line != again] == [*failures, failures[-1]]
    assert named.count(again) == 2
    assert lines[-1] == failures[-1]
    assert ", 1 failed, 0:" in lines[-2]
    assert "CalledProcessError" not in said

"""Runs that start from the end of another run of their paper."""

import pytest

from resync.base.settings.errors import ConfigError

VIT = "configs/qsr/experiments/vit.yaml"
SERIES = "qsr: {sync: {period: {alpha: 0.1}}}"


def runs(workspace) -> dict[str, object]:
    return {f"{run.series}/seed{run.seed}": run for run in workspace.load().runs("qsr", "smoke")}


def test_a_run_names_its_start_and_the_hash_of_it(workspace):
    workspace.change(VIT, SERIES, "qsr: {start_from: vit/parallel/seed1}")
    found = runs(workspace)
    for seed in (0, 1):  # one start for all seeds
        run = found[f"qsr/seed{seed}"]
        assert str(run.start_directory) == "smoke/qsr/vit/parallel/seed1"
        assert run.start_hash == found["parallel/seed1"].hash
        assert f"start_hash: {run.start_hash}\n" in run.to_yaml()
    assert found["parallel/seed1"].start_directory is None


def test_seeds_take_turns_at_several_starts(workspace):
    workspace.change(VIT, SERIES, "qsr: {seeds: [1, 2, 3, 4], start_from: vit/parallel/seed%2}")
    found = runs(workspace)
    starts = [found[f"qsr/seed{seed}"].start_directory.name for seed in (1, 2, 3, 4)]
    assert starts == ["seed1", "seed0", "seed1", "seed0"]
    assert found["qsr/seed4"].start_hash == found["parallel/seed0"].hash


def test_a_run_is_another_one_where_its_start_or_the_start_of_that_is_another(workspace):
    workspace.change(VIT, "series_only: [parallel, qsr]", "series_only: [parallel, h4, qsr]")
    starts = "h4: {start_from: vit/parallel/seed0}\n      qsr: {start_from: vit/h4/seed0}"
    workspace.change(VIT, SERIES, starts)
    before = runs(workspace)
    workspace.change(VIT, "label: Parallel", "label: Parallel\n    clip_norm: 1")
    after = runs(workspace)
    assert all(before[name].hash != after[name].hash for name in ("parallel/seed0", "h4/seed0", "qsr/seed0"))


def test_a_run_starts_from_a_checkpoint_that_another_one_keeps(workspace):
    workspace.change(VIT, "label: Parallel", "label: Parallel\n    checkpoint: {keep_epochs: [0, 2]}")
    kept = runs(workspace)["parallel/seed1"].kept_steps
    assert len(kept) == 2
    workspace.change(VIT, SERIES, f"qsr: {{start_from: vit/parallel/seed1@step{kept[1]}}}")
    run = runs(workspace)["qsr/seed0"]
    assert run.start_step == kept[1]
    assert str(run.start_directory) == "smoke/qsr/vit/parallel/seed1"
    workspace.change(VIT, f"@step{kept[1]}", "@step1")
    with pytest.raises(ConfigError, match=rf"found vit/parallel/seed1@step1, which that run does not keep, "
                       rf"allowed: @step0, @step{kept[1]} \(its checkpoint\.keep_epochs\)"):  # fmt: skip
        workspace.load()


def test_a_run_continues_only_a_training_of_its_kind(workspace):
    workspace.change(VIT, "label: Parallel", "label: Parallel\n    checkpoint: {keep_epochs: [0]}")
    workspace.change(VIT, SERIES, "qsr: {start_from: vit/parallel/seed1@step0, start_state: all}")
    with pytest.raises(ConfigError, match=r"@step0 with sync allreduce, allowed with start_state all: local$"):
        workspace.load()


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("vit/paralel/seed1", "found 'vit/paralel/seed1', allowed: vit/parallel/seed0, vit/parallel/seed1, "
                              "vit/qsr/seed0, vit/qsr/seed1; did you mean 'vit/parallel/seed1'?"),
        ("vit/qsr/seed0", "found vit/qsr/seed0, which starts from this run itself, allowed: an earlier one"),
    ],
)  # fmt: skip
def test_a_start_that_cannot_be_is_one_line(workspace, lines_of, start, expected):
    workspace.change(VIT, "label: QSR", f"label: QSR\n    start_from: {start}")
    workspace.change(VIT, "  paper:\n    processes: 2\n    resources: {nodes: 2}\n", "")
    workspace.change(VIT, "  h4:\n    label: Local\n    sync: {name: local, period: {rule: constant, h: 4}}\n", "")
    workspace.change("configs/qsr/published.yaml", "status: verified", "scale: smoke\n  status: verified")
    [line] = lines_of(workspace.load)
    assert line == f"configs/qsr: qsr/vit/qsr at scale smoke: start_from: {expected}"

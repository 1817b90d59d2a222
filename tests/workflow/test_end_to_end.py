"""From a configuration to a figure, with real but short training runs, one of them in two processes."""

import json

import pytest

ITEM = "figures/smoke/qsr/fig5.pdf"
RUN = "results/smoke/qsr/two_processes/h4/seed0/summary.json"
EXPERIMENT = "paper_configs/qsr/experiments/vit_b16_b4096.yaml"


@pytest.mark.slow
def test_one_figure_from_nothing(workflow):
    workflow.edit(EXPERIMENT, r"seeds: \[0, 1, 2\]", "seeds: [0]")
    workflow.edit(EXPERIMENT, r"epochs: 30", "epochs: 2")
    workflow.edit(EXPERIMENT, r"warmup_epochs: 3\b", "warmup_epochs: 0.5")
    workflow.snakemake(ITEM, RUN)
    assert (workflow.directory / ITEM).read_bytes().startswith(b"%PDF")
    summaries = [json.loads(file.read_text()) for file in workflow.directory.glob("results/**/summary.json")]
    assert [summary["status"] for summary in summaries] == ["finished"] * 3
    assert sorted(summary["launch"]["world_size"] for summary in summaries) == [1, 1, 2]
    assert "Nothing to be done" in workflow.snakemake(ITEM, RUN)

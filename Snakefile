# From paper_configs/ to every figure, table and audit. Targets by name:
#   snakemake                               everything at the chosen scale (--config scale=smoke|mini|paper)
#   snakemake qsr                           everything of one paper
#   snakemake figures/smoke/qsr/fig5.pdf    one figure or table, and only the runs that it shows
#   snakemake plan                          what the runs will cost
#   snakemake audit                         how close they came to what was published
#   snakemake report                        one page with all of it
from pathlib import Path

from snakemake.utils import min_version

from resync.config import load_suite
from resync.config.components import prepared_names

min_version("9.20")

SUITE = load_suite(Path("paper_configs"))
EXPERIMENTS = [each for paper in SUITE.papers.values() for each in paper.experiments.values()]
SCALE = config.get("scale", "smoke")


include: "workflow/rules/common.smk"


wildcard_constraints:
    scale=one_of(SUITE.scales),
    paper=one_of(SUITE.papers),
    experiment=one_of(experiment.id for experiment in EXPERIMENTS),
    series=one_of(series for experiment in EXPERIMENTS for series in experiment.series),
    seed="[0-9]+",


include: "workflow/rules/plan.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/collect.smk"
include: "workflow/rules/render.smk"
include: "workflow/rules/audit.smk"
include: "workflow/rules/report.smk"


localrules:
    all,
    plan,
    audit,
    report,
    run_config,
    report_words,
    # seconds each: on a cluster, a place in the queue costs more
    write_plan,
    collect,
    figure,
    table,
    audit_paper,
    write_audit,
    write_report,


rule all:
    default_target: True
    input:
        [paper_files(paper, SCALE) for paper in SUITE.papers],
        rules.plan.input,
        rules.audit.input,
        rules.report.input,


for paper in SUITE.papers:

    rule:
        name:
            paper
        input:
            paper_files(paper, SCALE),
        localrule: True

# From paper_configs/ to every figure, table and audit. Targets by name:
#   snakemake                               everything at the chosen scale (--config scale=smoke|mini|gpu|paper)
#   snakemake qsr                           everything of one paper
#   snakemake figures/smoke/qsr/fig5.pdf    one figure, with only the runs that it shows
#   snakemake figures/smoke/qsr/table1a.md  one table, likewise
#   snakemake plan                          the costs of the runs
#   snakemake rehearse                      a short job for every shape of job: memory, rates, hours against the limit
#   snakemake pilots                        the pilot runs, from which `resync power` computes the seeds that claims need
#   snakemake audit                         comparison with the published values and claims
#   snakemake report                        the site: pages with all results
from snakemake.utils import min_version

min_version("9.20")


include: "workflow/rules/common.smk"


wildcard_constraints:
    **files.names_of_runs(SUITE),


include: "workflow/rules/plan.smk"
include: "workflow/rules/rehearse.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/collect.smk"
include: "workflow/rules/render.smk"
include: "workflow/rules/audit.smk"
include: "workflow/rules/report.smk"


onstart:
    workflow_timer.keep_one(workflow.scheduler)
    if not workflow.touch:
        jobs = [job for job in workflow.dag.needrun_jobs() if job.rule.name == "train"]
        for job in jobs:
            at(job.wildcards.scale).write_run_yaml(RUN.format(**job.wildcards))
        asked = workflow.dag_settings
        forced = {*asked.forcerun, *(asked.targets if asked.forcetargets else [])}
        files.train_anew([job.output for job in jobs], forced, asked.forceall)


rule all:
    default_target: True
    input:
        [at(SCALE).paper_files(paper) for paper in SUITE.papers],
        rules.plan.input,
        rules.audit.input,
        rules.report.input,
    localrule: True


rule pilots:
    input:
        at(SCALE).pilot_files,
    localrule: True


for paper in SUITE.papers:

    rule:
        name:
            paper
        input:
            at(SCALE).paper_files(paper),
        localrule: True

# What the runs of a scale will cost: rounds, bytes, samples. Nothing is trained.


rule plan:
    input:
        expand("results/{scale}/plan.{suffix}", scale=SCALE, suffix=["json", "md"]),


rule write_plan:
    output:
        json="results/{scale}/plan.json",
        md="results/{scale}/plan.md",
    log:
        "results/{scale}/plan.log",
    conda:
        "../../environment.yml"
    params:
        runs=lambda wildcards: [run.hash for run in all_runs(wildcards.scale)],
    shell:
        "python -m resync plan --scale {wildcards.scale:q} --write results/{wildcards.scale:q}/plan > {log:q} 2>&1"

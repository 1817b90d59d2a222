# All numbers of a paper's runs in one tidy table: an export, which no other rule reads.


rule collect:
    input:
        runs=lambda wildcards: run_files(runs(wildcards.paper, wildcards.scale).values()),
        code=code("results"),
    output:
        multiext("results/{scale}/{paper}/collected", ".parquet", ".csv"),
    log:
        "results/{scale}/{paper}/collected.log",
    conda:
        "../../environment.yml"
    params:
        labels=lambda wildcards: [run.label for run in runs(wildcards.paper, wildcards.scale).values()],
    shell:
        "python -m resync collect --paper {wildcards.paper:q} --scale {wildcards.scale:q} > {log:q} 2>&1"

# All numbers of a paper's runs in one tidy table: an export that no other rule reads.


rule collect:
    input:
        runs=lambda names: at(names.scale).run_files(names.paper),
        code=files.code("results"),
    output:
        multiext("results/{scale}/{paper}/collected", ".parquet", ".csv"),
    log:
        "results/{scale}/{paper}/collected.log",
    localrule: True
    conda:
        "../../environment.yml"
    params:
        labels=lambda names: at(names.scale).labels(names.paper),
    shell:
        "python -m resync collect {wildcards.paper:q} --scale {wildcards.scale:q} > {log:q} 2>&1"

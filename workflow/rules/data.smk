# Data sets that are converted once, below the folder RESYNC_DATA. The target is the record of the converted file, by a
# relative name: results that are moved to another machine stay finished there, with or without the data.


rule prepare:
    output:
        "results/data/{dataset}.json",
    log:
        "results/data/{dataset}.log",
    wildcard_constraints:
        dataset=one_of(prepared_names()),
    conda:
        "../../environment.yml"
    shell:
        "python -m resync data prepare {wildcards.dataset} > {output} 2> {log}"

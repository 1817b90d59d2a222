# Data sets that are converted once, below the folder RESYNC_DATA. The target is the record of the converted file, by a
# relative name: results that are moved to another machine stay finished there, with or without the data. Images that
# are read from disk are prepared for the loader of the runs; FFCV's .beton files of ImageNet take hours of one core.

from resync.config.components import prepared_names


rule prepare:
    output:
        "results/data/{dataset}{loader}.json",
    log:
        "results/data/{dataset}{loader}.log",
    wildcard_constraints:
        dataset=files.one_of(prepared_names()),
        loader=r"|\.auto|\.ffcv|\.torch",
    conda:
        "../../environment.yml"
    threads: lambda wildcards: 16 if wildcards.loader else 1
    resources:
        runtime=lambda wildcards: 720 if wildcards.loader else 60,
    params:
        loader=lambda wildcards: ["--loader", wildcards.loader.removeprefix(".")] if wildcards.loader else [],
    shell:
        "python -m resync data prepare {params.loader:q} {wildcards.dataset:q} > {output:q} 2> {log:q}"

# Data sets that are converted once, below the folder RESYNC_DATA. The target is the record of the converted file, under
# a relative path: results that are moved to another machine stay up to date there, with or without the data. Images
# that are read from disk are prepared in the format of the runs; FFCV's .beton files of ImageNet take hours on one core.

from resync.tasks.data_sets.declaration import prepared_names


rule prepare:
    output:
        "results/data/{dataset}{format}.json",
    log:
        "results/data/{dataset}{format}.log",
    wildcard_constraints:
        dataset=files.one_of(prepared_names()),
        format=r"|\.auto|\.beton|\.files",
    conda:
        "../../environment.yml"
    threads: lambda wildcards: 16 if wildcards.format else 1
    resources:
        runtime=lambda wildcards: 720 if wildcards.format else 60,
    params:
        format=lambda wildcards: ["--format", wildcards.format.removeprefix(".")] if wildcards.format else [],
    shell:
        "python -m resync data prepare {wildcards.dataset:q} {params.format:q} > {output:q} 2> {log:q}"

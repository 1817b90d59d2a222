# A resolved configuration, then the training it describes. Only the content of run.yaml makes a run train again.


rule run_config:
    output:
        f"{RUN}/run.yaml",
    log:
        f"{RUN}/run_config.log",
    conda:
        "../../environment.yml"
    params:
        text=lambda wildcards: run_of(wildcards).to_yaml(),
    shell:
        "printf %s {params.text:q} > {output} 2> {log}"


# checkpoint/ and wandb/ beside the outputs are undeclared on purpose: Snakemake would delete them before a
# second attempt, which continues from the checkpoint. World size and nodes come from run.yaml and the run's
# resources alone; `--resources` may clip what the scheduler gives.
rule train:
    input:
        config=f"{RUN}/run.yaml",
        data=data_files,
        start=start_files,
    output:
        expand("{run}/{file}", run=RUN, file=RUN_FILES, allow_missing=True),
    log:
        f"{RUN}/train.log",
    benchmark:
        f"{RUN}/benchmark.tsv"
    retries: 2
    conda:
        "../../environment.yml"
    threads: lambda wildcards: run_of(wildcards).resources.cpus
    resources:
        nodes=lambda wildcards: run_of(wildcards).resources.nodes,
        gres=gpus_per_node,
        tasks=srun_tasks,
        mpi=lambda wildcards: "srun" if srun_tasks(wildcards) else None,
        tasks_per_gpu=0,
        mem_mb=lambda wildcards: run_of(wildcards).resources.memory_mb,
        runtime=lambda wildcards: run_of(wildcards).resources.minutes,
    params:
        directory=subpath(input.config, parent=True),
    shell:
        "python -m resync launch --config {input.config} --out {params.directory} --nodes {resources.nodes}"
        " > {log} 2>&1"

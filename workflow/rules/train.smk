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
        "printf %s {params.text:q} > {output:q} 2> {log:q}"


# checkpoint/ and wandb/ beside the outputs are undeclared on purpose: Snakemake would delete them before a
# second attempt, which continues from the checkpoint. World size and nodes come from run.yaml and the run's
# resources alone; `--resources` may clip what the scheduler gives. `exec`: a signal to the shell is one to the run.
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
        machines=lambda wildcards: run_of(wildcards).resources.nodes,
        nodes=srun_nodes,
        gres=gpus_per_node,
        tasks=srun_nodes,
        mpi=lambda wildcards: "srun" if srun_nodes(wildcards) else None,
        tasks_per_gpu=0,
        mem_mb=lambda wildcards: run_of(wildcards).resources.memory_mb,
        runtime=lambda wildcards: run_of(wildcards).resources.minutes,
        launcher=lambda wildcards: run_of(wildcards).resources.launcher,
        max_restarts=lambda wildcards: run_of(wildcards).resources.max_restarts,
        timeout_seconds=lambda wildcards: run_of(wildcards).resources.timeout_seconds,
    params:
        directory=subpath(input.config, parent=True),
    shell:
        "exec python -m resync launch --config {input.config:q} --out {params.directory:q} --nodes {resources.machines:q}"
        " --cpus {threads:q} --launcher {resources.launcher:q} --max-restarts {resources.max_restarts:q}"
        " --timeout {resources.timeout_seconds:q} > {log:q} 2>&1"

# A training, and the resolved configuration that it starts from. A run trains again when its hash changes, which covers
# only settings that affect the result: others in run.yaml may change (how often to log, the number of processes).


# Only where it is asked for: before trainings, `onstart` in the Snakefile writes theirs. As an input of `train`, to be
# made again without training again, it would have to be `ancient`, and Snakemake forgets every other reason for a job,
# missing results among them, where such an input is made again (snakemake/snakemake#4166).
rule run_config:
    output:
        f"{RUN}/run.yaml",
    log:
        f"{RUN}/run_config.log",
    localrule: True
    conda:
        "../../environment.yml"
    params:
        text=lambda names: at(names.scale).run_yaml(RUN.format(**names)),
    shell:
        "printf %s {params.text:q} > {output:q} 2> {log:q}"


# The hash is the name of the file, so that a change is noticed even if Snakemake's records are lost.
rule run_hash:
    output:
        f"{RUN}/{{hash}}.hash",
    log:
        f"{RUN}/{{hash}}.hash.log",
    localrule: True
    conda:
        "../../environment.yml"
    params:
        directory=subpath(output[0], parent=True),
    shell:
        "rm -f {params.directory:q}/*.hash && touch {output:q} 2> {log:q}"


# checkpoint/ and wandb/ beside the outputs are undeclared on purpose: Snakemake would delete them before a second
# attempt, which continues from the checkpoint. Where a run that has results is forced, `onstart` in the Snakefile asks it
# to train from its first step. World size and nodes come only from run.yaml and the run's resources;
# `--resources` may limit what the scheduler grants.
rule train:
    input:
        hash=lambda names: of_training(names, [f"results/{run_of(names).hash_file}"]),
        data=lambda names: of_training(names, files.data_files(run_of(names))),
        start=lambda names: of_training(names, files.start_files(run_of(names))),
    output:
        expand("{run}/{file}", run=RUN, file=RUN_FILES, allow_missing=True),
    log:
        f"{RUN}/train.log",
    retries: 2
    conda:
        "../../environment.yml"
    threads: lambda names: run_of(names).resources.cpus
    resources:
        machines=lambda names: run_of(names).resources.nodes,
        nodes=lambda names: files.srun_nodes(run_of(names)),
        gres=lambda names: files.gpus_per_node(run_of(names)),
        tasks=lambda names: files.srun_nodes(run_of(names)),
        mpi=lambda names: if_several(names, "srun"),
        tasks_per_gpu=0,
        mem_mb=lambda names: run_of(names).resources.memory_mb,
        runtime=lambda names: run_of(names).resources.minutes,
        launcher=lambda names: run_of(names).resources.launcher,
        max_restarts=lambda names: run_of(names).resources.max_restarts,
        timeout_seconds=lambda names: run_of(names).resources.timeout_seconds,
        attempt=lambda names, attempt: attempt,
    params:
        directory=subpath(output[0], parent=True),
    shell:
        "python -m resync launch --config {params.directory:q}/run.yaml --out {params.directory:q}"
        " --nodes {resources.machines:q} --cpus {threads:q} --launcher {resources.launcher:q} --max-restarts {resources.max_restarts:q}"
        " --timeout {resources.timeout_seconds:q} --attempt {resources.attempt:q} > {log:q} 2>&1"

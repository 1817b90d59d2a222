# One short job for every shape of job among the runs, by the path of the real runs, and a page with what they say. A shape
# has the resources of its runs, so that what they lack, it lacks. A failed rehearsal is a verdict, not a failed job, and is
# repeated when Snakemake is called again; a job that is asked to stop goes back to the queue, as those of runs do.


rule rehearse:
    input:
        f"results/{SCALE}/rehearsal.md",
    localrule: True


rule rehearse_shape:
    output:
        "results/{scale}/rehearsal/{shape}.json",
    log:
        "results/{scale}/rehearsal/{shape}.log",
    wildcard_constraints:
        shape="[0-9a-f]{12}",
    retries: 2
    conda:
        "../../environment.yml"
    threads: lambda names: rehearsed(names).resources.cpus
    resources:
        nodes=lambda names: files.srun_nodes(rehearsed(names)),
        gres=lambda names: files.gpus_per_node(rehearsed(names)),
        tasks=lambda names: files.srun_nodes(rehearsed(names)),
        mpi=lambda names: "srun" if files.srun_nodes(rehearsed(names)) else None,
        tasks_per_gpu=0,
        mem_mb=lambda names: rehearsed(names).resources.memory_mb,
        runtime=lambda names: min(60, rehearsed(names).resources.minutes),
    params:
        failures=lambda names: at(names.scale).failed_rehearsals(names.shape),
    shell:
        "exec python -m resync rehearse --scale {wildcards.scale:q} --shape {wildcards.shape:q} > {log:q} 2>&1"


rule write_rehearsal:
    input:
        lambda names: [f"results/{names.scale}/rehearsal/{shape}.json" for shape in at(names.scale).shapes],
    output:
        multiext("results/{scale}/rehearsal", ".md", ".json"),
    log:
        "results/{scale}/rehearsal.log",
    localrule: True
    conda:
        "../../environment.yml"
    params:
        runs=lambda names: at(names.scale).plan_hash,
    shell:
        "python -m resync rehearse --scale {wildcards.scale:q} --gather > {log:q} 2>&1"

# The costs of a scale's runs, such as rounds, bytes and samples, without training.


rule plan:
    input:
        expand("results/{scale}/plan.{suffix}", scale=SCALE, suffix=["json", "md"]),
    localrule: True


rule write_plan:
    input:
        code=files.code(*files.PLANNING),
    output:
        json="results/{scale}/plan.json",
        md="results/{scale}/plan.md",
    log:
        "results/{scale}/plan.log",
    localrule: True
    conda:
        "../../environment.yml"
    params:
        runs=lambda names: at(names.scale).plan_hash,
    shell:
        "python -m resync plan --scale {wildcards.scale:q} --write results/{wildcards.scale:q}/plan > {log:q} 2>&1"

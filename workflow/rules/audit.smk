# Comparison with published values and claims: one verdict each. The overview is assembled from the papers' audits.


rule audit:
    input:
        f"results/{SCALE}/audit.json",
    localrule: True


# Takes seconds, like every local rule: on a cluster, waiting in the queue would take longer.
rule audit_paper:
    input:
        runs=lambda names: at(names.scale).run_files(names.paper),
        logs=lambda names: at(names.scale).published_logs(names.paper),
        code=[*files.code("audit", "results", *files.PLANNING), files.METRICS],
    output:
        "results/{scale}/{paper}/audit.json",
    log:
        "results/{scale}/{paper}/audit.log",
    localrule: True
    conda:
        "../../environment.yml"
    params:
        text=lambda names: at(names.scale).audited(names.paper),
        labels=lambda names: at(names.scale).labels(names.paper),
    shell:
        "python -m resync audit {wildcards.paper:q} --scale {wildcards.scale:q} > {log:q} 2>&1"


rule write_audit:
    input:
        expand("results/{{scale}}/{paper}/audit.json", paper=SUITE.papers),
        code=files.code("audit", "results"),
    output:
        "results/{scale}/audit.json",
    log:
        "results/{scale}/audit.log",
    localrule: True
    conda:
        "../../environment.yml"
    shell:
        "python -m resync audit --scale {wildcards.scale:q} --gather > {log:q} 2>&1"

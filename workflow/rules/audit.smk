# Published and claimed against reproduced: one verdict for each number and claim.


rule audit:
    input:
        expand("results/{scale}/audit.{suffix}", scale=SCALE, suffix=["json", "md", "html"]),
    localrule: True


# Seconds, as every local rule: on a cluster, a place in the queue costs more.
rule audit_paper:
    input:
        collected="results/{scale}/{paper}/collected.parquet",
        code=files.code("audit", "pages"),
    output:
        multiext("results/{scale}/{paper}/audit", ".json", ".md", ".html"),
    log:
        "results/{scale}/{paper}/audit.log",
    localrule: True
    conda:
        "../../environment.yml"
    params:
        text=lambda names: at(names.scale).audited(names.paper),
    shell:
        "python -m resync audit --paper {wildcards.paper:q} --scale {wildcards.scale:q} > {log:q} 2>&1"


rule write_audit:
    input:
        lambda names: expand(
            "results/{scale}/{paper}/audit.json", scale=names.scale, paper=at(names.scale).papers
        ),
        code=files.code("audit", "pages"),
    output:
        multiext("results/{scale}/audit", ".json", ".md", ".html"),
    log:
        "results/{scale}/audit.log",
    localrule: True
    conda:
        "../../environment.yml"
    shell:
        "python -m resync audit --scale {wildcards.scale:q} > {log:q} 2>&1"

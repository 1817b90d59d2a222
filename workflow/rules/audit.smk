# Published and claimed against reproduced: one verdict a number and a claim.


rule audit:
    input:
        expand("results/{scale}/audit.{suffix}", scale=SCALE, suffix=["json", "md", "html"]),


rule audit_paper:
    input:
        collected="results/{scale}/{paper}/collected.parquet",
        code=code("audit", "pages"),
    output:
        multiext("results/{scale}/{paper}/audit", ".json", ".md", ".html"),
    log:
        "results/{scale}/{paper}/audit.log",
    conda:
        "../../environment.yml"
    params:
        text=audited,
    shell:
        "python -m resync audit --paper {wildcards.paper:q} --scale {wildcards.scale:q} > {log:q} 2>&1"


rule write_audit:
    input:
        lambda wildcards: [
            f"results/{wildcards.scale}/{paper}/audit.json" for paper in papers(wildcards.scale)
        ],
        code=code("audit", "pages"),
    output:
        multiext("results/{scale}/audit", ".json", ".md", ".html"),
    log:
        "results/{scale}/audit.log",
    conda:
        "../../environment.yml"
    shell:
        "python -m resync audit --scale {wildcards.scale:q} > {log:q} 2>&1"

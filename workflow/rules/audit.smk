# Published and claimed against reproduced: one verdict per number and claim. The overview is made of the papers' parts.


rule audit:
    input:
        expand("results/{scale}/audit.{suffix}", scale=SCALE, suffix=["json", "md", "html"]),


rule audit_paper:
    input:
        runs=lambda wildcards: run_files(runs(wildcards.paper, wildcards.scale).values()),
        code=code("audit", "pages", "results"),
    output:
        multiext("results/{scale}/{paper}/audit", ".json", ".md", ".html"),
    log:
        "results/{scale}/{paper}/audit.log",
    conda:
        "../../environment.yml"
    params:
        text=audited,
        labels=lambda wildcards: [run.label for run in runs(wildcards.paper, wildcards.scale).values()],
    shell:
        "python -m resync audit --paper {wildcards.paper:q} --scale {wildcards.scale:q} > {log:q} 2>&1"


rule write_audit:
    input:
        expand("results/{{scale}}/{paper}/audit.json", paper=SUITE.papers),
        code=code("audit", "pages", "results"),
    output:
        multiext("results/{scale}/audit", ".json", ".md", ".html"),
    log:
        "results/{scale}/audit.log",
    conda:
        "../../environment.yml"
    shell:
        "python -m resync audit --scale {wildcards.scale:q} --gather > {log:q} 2>&1"

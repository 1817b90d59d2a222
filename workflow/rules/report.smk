# One page with every figure and table, the plan and the audit.


rule report:
    input:
        f"results/{SCALE}/report.html",


rule write_report:
    input:
        "results/{scale}/plan.json",
        "results/{scale}/audit.json",
        lambda wildcards: [
            file for paper in papers(wildcards.scale) for file in item_files(paper, wildcards.scale)
        ],
        code=code("report", "pages"),
    output:
        "results/{scale}/report.html",
    log:
        "results/{scale}/report.log",
    conda:
        "../../environment.yml"
    shell:
        "python -m resync report --scale {wildcards.scale} > {log} 2>&1"

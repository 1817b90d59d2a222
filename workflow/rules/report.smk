# One page with every figure and table and the audit.


rule report:
    input:
        f"results/{SCALE}/report.html",


# The page links to the pictures, so they only have to be there: a figure that is drawn again is shown as it is.
rule write_report:
    input:
        audit="results/{scale}/audit.json",
        drawn=ancient(
            lambda wildcards: [
                file for paper in papers(wildcards.scale) for file in item_files(paper, wildcards.scale)
            ]
        ),
        code=code("report", "pages"),
    output:
        "results/{scale}/report.html",
    log:
        "results/{scale}/report.log",
    conda:
        "../../environment.yml"
    params:
        papers=lambda wildcards: [repr(SUITE.papers[paper]) for paper in papers(wildcards.scale)],
    shell:
        "python -m resync report --scale {wildcards.scale} > {log} 2>&1"

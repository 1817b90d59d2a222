# One page with every figure and table and the audit.


rule report:
    input:
        f"results/{SCALE}/report.html",
    localrule: True


# The words of the configuration that the page repeats. A file, because Snakemake sees no other change of a job
# once a job before it is to run.
rule report_words:
    output:
        "results/{scale}/report.sha256",
    log:
        "results/{scale}/report_words.log",
    localrule: True
    conda:
        "../../environment.yml"
    params:
        hash=lambda names: at(names.scale).words_hash,
    shell:
        "printf %s {params.hash:q} > {output:q} 2> {log:q}"


# The page links to the pictures, so they only have to be there: it shows a figure that is drawn again as it is.
rule write_report:
    input:
        words="results/{scale}/report.sha256",
        audit="results/{scale}/audit.json",
        drawn=ancient(
            lambda names: [
                file for paper in at(names.scale).papers for file in at(names.scale).item_files(paper)
            ]
        ),
        code=files.code("report", "pages"),
    output:
        "results/{scale}/report.html",
    log:
        "results/{scale}/report.log",
    localrule: True
    conda:
        "../../environment.yml"
    shell:
        "python -m resync report --scale {wildcards.scale:q} > {log:q} 2>&1"

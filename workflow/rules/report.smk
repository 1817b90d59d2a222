# One page with all figures, tables and the audit.


rule report:
    input:
        f"results/{SCALE}/report.html",
    localrule: True


# The texts of the configuration that the page repeats. They are a file because Snakemake notices no other change of a
# job whose input is about to be made.
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


# The page links to the pictures, so they only have to exist: it shows redrawn figures without a new report.
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

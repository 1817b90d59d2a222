# The site of the scale: pages with all runs, figures, tables and the audit.


rule report:
    input:
        f"results/{SCALE}/site/index.html",
    localrule: True


# The texts of the configuration that the pages repeat. They are a file because Snakemake notices no other change of a
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


# The folder of the first page is written as a whole, and so is results/index.html, which leads to the sites of all
# scales. The pages have copies of the figures, and whenever runs change, so does the audit.
rule write_report:
    input:
        words="results/{scale}/report.sha256",
        audit="results/{scale}/audit.json",
        drawn=lambda names: [
            file for paper in at(names.scale).papers for file in at(names.scale).item_files(paper)
        ],
        code=files.code("report", "report/assets"),
    output:
        "results/{scale}/site/index.html",
    log:
        "results/{scale}/report.log",
    localrule: True
    conda:
        "../../environment.yml"
    shell:
        "python -m resync report --scale {wildcards.scale:q} > {log:q} 2>&1"

# A figure or table reads its own runs and nothing else, and is drawn again when its source or its text changes.


rule figure:
    input:
        runs=item_results,
        code=item_code,
    output:
        multiext("figures/{scale}/{paper}/{item}", *FIGURE_FILES),
    log:
        "results/{scale}/{paper}/{item}.log",
    wildcard_constraints:
        item=one_item_of("figures"),
    conda:
        "../../environment.yml"
    params:
        text=item_text,
    shell:
        "python -m resync render --paper {wildcards.paper:q} --scale {wildcards.scale:q} --item {wildcards.item:q}"
        " > {log:q} 2>&1"


use rule figure as table with:
    output:
        multiext("figures/{scale}/{paper}/{item}", *TABLE_FILES),
    wildcard_constraints:
        item=one_item_of("tables"),

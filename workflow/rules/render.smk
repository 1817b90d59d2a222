# A figure or table reads only its own runs, and is drawn again when its source code or its text changes.


rule figure:
    input:
        runs=lambda names: at(names.scale).item_results(names.paper, names.item),
        code=lambda names: at(names.scale).item_code(names.paper, names.item),
    output:
        multiext("figures/{scale}/{paper}/{item}", *files.FIGURE_FILES),
    log:
        "results/{scale}/{paper}/{item}.log",
    wildcard_constraints:
        item=files.one_item(SUITE, "figures"),
    localrule: True
    conda:
        "../../environment.yml"
    params:
        text=lambda names: at(names.scale).item_text(names.paper, names.item),
    shell:
        "python -m resync render {wildcards.paper:q}/{wildcards.item:q} --scale {wildcards.scale:q} > {log:q} 2>&1"


use rule figure as table with:
    output:
        multiext("figures/{scale}/{paper}/{item}", *files.TABLE_FILES),
    wildcard_constraints:
        item=files.one_item(SUITE, "tables"),

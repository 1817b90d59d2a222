# A figure or table reads only its own runs, and is drawn again when its source code or its text changes.


# The files of an item: for Snakemake's own `--report`, the picture and its data have the item's caption, and are listed
# by paper.
def drawn(*suffixes):
    shown = {".svg": "drawn", ".csv": "data"}
    stem = "figures/{scale}/{paper}/{item}"
    return [
        reported(stem + suffix, shown[suffix]) if suffix in shown else stem + suffix for suffix in suffixes
    ]


def reported(file, shown):
    def labels(names):
        return {**at(names.scale).item_labels(names.paper, names.item), "shown": shown}

    return report(file, caption="../report/item.rst", category="{paper}", labels=labels)


rule figure:
    input:
        runs=lambda names: at(names.scale).item_results(names.paper, names.item),
        code=lambda names: at(names.scale).item_code(names.paper, names.item),
    output:
        drawn(*files.FIGURE_FILES),
    log:
        "results/{scale}/{paper}/{item}.log",
    wildcard_constraints:
        item=files.one_figure(SUITE),
    localrule: True
    conda:
        "../../environment.yml"
    params:
        text=lambda names: at(names.scale).item_text(names.paper, names.item),
        caption=lambda names: at(names.scale).item_caption(names.paper, names.item),
    shell:
        "python -m resync render --paper {wildcards.paper:q} --scale {wildcards.scale:q} --item {wildcards.item:q}"
        " > {log:q} 2>&1"


use rule figure as table with:
    output:
        drawn(*files.TABLE_FILES),
    wildcard_constraints:
        item=files.one_table(SUITE),

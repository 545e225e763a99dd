# The papers' figures and tables from this study (docs/papers.md).


localrules:
    paper,
    papers,


wildcard_constraints:
    publication="|".join(PUBLICATIONS),


rule paper:
    input:
        **rules.collect.output,
        **rules.fit.output,
        paper_figures=rules.paper_table.output.paper_figures,
        network_layers=NETWORKS_DESCRIBED,
        published=lambda wildcards: [
            file_of_workflow(f"resources/published/{file}")
            for file in PUBLICATIONS[wildcards.publication].files
        ],
        code=code_of("papers.py", lambda wildcards: PUBLICATIONS[wildcards.publication].modules),
    output:
        folder=report(
            directory(f"{RESULTS}/papers/{{publication}}"),
            patterns=["{exhibit}.svg"],
            caption="../report/exhibit.rst",
            category="Figures of the papers",
            subcategory="{publication}",
            labels={"exhibit": "{exhibit}"},
        ),
    log:
        f"{LOGS}/papers/{{publication}}.log",
    script:
        "../../scripts/papers.py"


# All papers: `snakemake papers`.
rule papers:
    input:
        EXHIBITS,

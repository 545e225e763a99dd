# The papers' figures and tables from this study (docs/papers.md), and every model table typeset.
from stallpoint.report.exhibits import PAPERS as PUBLICATIONS


localrules:
    paper,
    papers,
    typeset,


wildcard_constraints:
    publication="|".join(PUBLICATIONS),


rule paper:
    input:
        **rules.collect.output,
        **rules.fit.output,
        paper_figures=rules.paper_table.output.paper_figures,
        network_layers=rules.compare_published.input.networks,
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
        expand(rules.paper.output.folder, publication=PUBLICATIONS),


rule typeset:
    input:
        **rules.fit.output,
        **rules.extrapolate.output,
        code=code_of("typeset.py"),
    output:
        folder=directory(f"{RESULTS}/typeset"),
    log:
        f"{LOGS}/typeset.log",
    script:
        "../../scripts/typeset.py"

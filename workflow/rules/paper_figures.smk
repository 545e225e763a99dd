# A paper's figures from the parameters it states: no cluster and no study needed (snakemake paper_figures).


localrules:
    paper_table,
    paper_chart,
    paper_figures,


rule paper_table:
    input:
        paper=file_of_workflow("resources/published/keuper-2016.yaml"),
        code=code_of("paper_figures.py", lambda wildcards: PREDICTING_MODULES),
    output:
        paper_figures="results/paper_figures/keuper-2016.parquet",
    log:
        "logs/paper_figures/keuper-2016.log",
    script:
        "../../scripts/paper_figures.py"


rule paper_chart:
    input:
        paper_figures=rules.paper_table.output.paper_figures,
        code=code_of("chart.py", lambda wildcards: [PAPERS[wildcards.paper].module]),
    output:
        html="results/paper_figures/{paper}.html",
        svg="results/paper_figures/{paper}.svg",
        pdf="results/paper_figures/{paper}.pdf",
        png="results/paper_figures/{paper}.png",
        json="results/paper_figures/{paper}.json",
    log:
        "logs/paper_figures/{paper}.log",
    script:
        "../../scripts/chart.py"


rule paper_figures:
    input:
        rules.paper_table.output,
        expand(rules.paper_chart.output, paper=PAPERS),

# A paper's figures from the parameters it states: no cluster and no study needed (snakemake published).


localrules:
    published_table,
    published_chart,
    published,


rule published_table:
    input:
        paper=os.path.relpath(Path(workflow.basedir, "resources/published/keuper-2016.yaml")),
        code=source_files("models", "*.py"),
    output:
        published="results/published/keuper-2016.parquet",
    log:
        "logs/published/keuper-2016.log",
    script:
        "../../scripts/published.py"


rule published_chart:
    input:
        published=rules.published_table.output.published,
        code=chart_code,
    output:
        html="results/published/{published}.html",
        svg="results/published/{published}.svg",
        png="results/published/{published}.png",
    log:
        "logs/published/{published}.log",
    script:
        "../../scripts/chart.py"


rule published:
    input:
        rules.published_table.output,
        expand(rules.published_chart.output, published=PUBLISHED),

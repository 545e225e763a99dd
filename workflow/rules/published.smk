# Published tables of network properties beside ours.


localrules:
    compare_published,


rule compare_published:
    input:
        published=lambda wildcards: file_of_workflow(f"resources/published/{wildcards.table}.yaml"),
        networks=expand(f"{RESULTS}/networks/{{network}}.parquet", network=STUDY.values("network")),
        runs=lambda wildcards: rules.collect.output.convergence_runs,
        code=code_of("compare_published.py"),
    output:
        table=f"{RESULTS}/published/{{table}}.parquet",
        md=report(
            f"{RESULTS}/published/{{table}}.md",
            caption="../report/published.rst",
            category="Tables",
            labels={"table": "{table}"},
        ),
    log:
        f"{LOGS}/published/{{table}}.log",
    params:
        batches=global_batches,
    script:
        "../../scripts/compare_published.py"

# Model tables -> charts, conclusions and the report: the final rule.


localrules:
    chart,
    conclude,
    report_page,
    slides,
    proposal,
    typeset,


# All charts in one process: to start one for each takes longer than to draw it.
rule draw:
    input:
        **rules.collect.output,
        **rules.fit.output,
        **rules.extrapolate.output,
        networks=NETWORKS_DESCRIBED,
        code=code_of("draw.py", lambda wildcards: [chart.module for chart in CHARTS.values()]),
    output:
        drawn=temp(directory(f"{RESULTS}/drawn")),
    log:
        f"{LOGS}/draw.log",
    localrule: SUBMIT is None
    resources:
        mem_mb=lambda wildcards, input: memory_forecast.fit_memory(Path(input.runs), Path(input.iterations)),
        runtime=time_limits.tables_minutes(len(STUDY.cells)),
    script:
        "../../scripts/draw.py"


# Each chart to its place, or why it could not be drawn: one that fails leaves the others alone.
rule chart:
    input:
        drawn=rules.draw.output.drawn,
    output:
        html=f"{RESULTS}/figures/{{chart}}.html",
        svg=report(
            f"{RESULTS}/figures/{{chart}}.svg",
            caption="../report/chart.rst",
            category="Figures",
            subcategory=chart_topic,
            labels=chart_labels,
        ),
        pdf=f"{RESULTS}/figures/{{chart}}.pdf",
        png=f"{RESULTS}/figures/{{chart}}.png",
        json=f"{RESULTS}/figures/{{chart}}.json",
    log:
        f"{LOGS}/chart/{{chart}}.log",
    params:
        caption=lambda wildcards: CHARTS[wildcards.chart].caption,
        drawn=lambda wildcards, input: f"{input.drawn}/{wildcards.chart}",
    shell:
        "if [ -e {params.drawn}.error ]; then tee {log} < {params.drawn}.error >&2; exit 1; fi;"
        " cp {params.drawn}.* $(dirname {output.svg})"


rule conclude:
    input:
        **rules.collect.output,
        **files_of(rules.fit),
        **files_of(rules.extrapolate),
        external=rules.extrapolate.input.external,
        network_layers=NETWORKS_DESCRIBED,
        claim_files=CLAIM_FILES,
        code=code_of("conclude.py"),
    output:
        md=report(
            f"{RESULTS}/conclusions.md",
            caption="../report/conclusions.rst",
            category="Conclusions",
            labels={"of": STUDY.name, "as": "text"},
        ),
        json=f"{RESULTS}/conclusions.json",
        claims=f"{RESULTS}/claims.parquet",
    log:
        f"{LOGS}/conclude.log",
    params:
        threshold=STUDY.config["models"]["threshold"],
        claims=STUDY.config["claims"],
        excluded=[{"axes": dict(entry.axes), "reason": entry.reason} for entry in STUDY.excluded],
        external=rules.extrapolate.params.names,
        shared_links=rules.fit.params.shared_links,
    script:
        "../../scripts/conclude.py"


rule report_page:
    input:
        **rules.collect.output,
        **files_of(rules.fit),
        **files_of(rules.extrapolate),
        conclusions=rules.conclude.output.json,
        networks=NETWORKS_DESCRIBED,
        papers=EXHIBITS,
        charts=expand(rules.chart.output.json, chart=CHARTS),
        code=code_of("report_page.py"),
    output:
        report(
            f"{RESULTS}/report.html",
            caption="../report/report.rst",
            category="Report",
            labels={"of": STUDY.name, "as": "page"},
        ),
    log:
        f"{LOGS}/report_page.log",
    params:
        study=STUDY.name,
    script:
        "../../scripts/report_page.py"


rule slides:
    input:
        **rules.collect.output,
        **rules.fit.output,
        conclusions=rules.conclude.output.json,
        code=code_of("slides.py"),
    output:
        directory(f"{RESULTS}/slides"),
    log:
        f"{LOGS}/slides.log",
    script:
        "../../scripts/slides.py"


# Only on demand: `snakemake proposal`.
rule proposal:
    input:
        predictions=rules.fit.output.predictions,
        costs=rules.fit.output.costs,
        stalling=rules.fit.output.stalling,
        code=code_of("proposal.py"),
    output:
        f"{RESULTS}/proposal.html",
    log:
        f"{LOGS}/proposal.log",
    params:
        samples=STUDY.config["epoch_samples"] * STUDY.config["models"]["training_epochs"],
        epochs=STUDY.config["models"]["training_epochs"],
        min_efficiency=STUDY.config["models"]["efficiency"],
    script:
        "../../scripts/proposal.py"


# Every model table typeset.
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

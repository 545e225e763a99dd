# Model tables -> charts, conclusions and the report: the final rule.


localrules:
    chart,
    conclude,
    report_page,


rule chart:
    input:
        **rules.collect.output,
        **rules.fit.output,
        **rules.extrapolate.output,
        code=chart_code,
    output:
        html=f"{RESULTS}/figures/{{chart}}.html",
        svg=report(
            f"{RESULTS}/figures/{{chart}}.svg",
            caption="../report/chart.rst",
            category="Figures",
            labels={"figure": "{chart}"},
        ),
        pdf=f"{RESULTS}/figures/{{chart}}.pdf",
        png=f"{RESULTS}/figures/{{chart}}.png",
    log:
        f"{LOGS}/chart/{{chart}}.log",
    params:
        caption=lambda wildcards: CHARTS[wildcards.chart].caption,
    script:
        "../../scripts/chart.py"


rule conclude:
    input:
        **rules.collect.output,
        **rules.fit.output,
        code=source_files("conclusions", "*.py"),
    output:
        md=report(f"{RESULTS}/conclusions.md", category="Conclusions"),
        json=f"{RESULTS}/conclusions.json",
    log:
        f"{LOGS}/conclude.log",
    params:
        judged_by={name: STUDY.config["models"][name] for name in ("threshold", "efficiency")},
    script:
        "../../scripts/conclude.py"


rule report_page:
    input:
        **rules.collect.output,
        **rules.fit.output,
        **rules.extrapolate.output,
        conclusions=rules.conclude.output.json,
        networks=rules.compare_published.input.networks,
        published=expand(rules.compare_published.output.table, table="keuper-2016-table-ii"),
        papers=rules.papers.input,
        charts=expand(rules.chart.output.svg, chart=CHARTS),
        code=source_files("report.*"),
    output:
        f"{RESULTS}/report.html",
    log:
        f"{LOGS}/report_page.log",
    params:
        study=STUDY.name,
        left_out=[{"axes": dict(entry.axes), "reason": entry.reason} for entry in STUDY.left_out],
    script:
        "../../scripts/report_page.py"

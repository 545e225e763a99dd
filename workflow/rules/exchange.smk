# Records in and out: what other programs measured becomes raw records; runs become files that other programs read.
from stallpoint.study.kinds import IMPORTED_KINDS


localrules:
    layer_trace,
    task_graph,
    timeline,
    traces,


for kind in [] if ARCHIVED else IMPORTED_KINDS:

    rule:
        name:
            kind.replace("-", "_")
        input:
            of_cell(kind, attrgetter("files")),
        output:
            folder=directory(cell_pattern(kind, f"{RESULTS}/raw")),
        log:
            cell_pattern(kind, LOGS) + ".log",
        localrule: True
        params:
            cell=of_cell(kind, Cell.to_json),
        script:
            "../../scripts/import_records.py"


wildcard_constraints:
    cell="((imported-)?train|command)/.+",


# Without code_of: it would make a plan of these for thousands of cells a third slower.
rule layer_trace:
    input:
        records=f"{RESULTS}/raw/{{cell}}",
    output:
        folder=directory(f"{RESULTS}/traces/{{cell}}/layers"),
    log:
        f"{LOGS}/traces/{{cell}}/layers.log",
    script:
        "../../scripts/export_trace.py"


rule timeline:
    input:
        records=f"{RESULTS}/raw/{{cell}}",
    output:
        timeline=f"{RESULTS}/traces/{{cell}}/timeline.json",
    log:
        f"{LOGS}/traces/{{cell}}/timeline.log",
    script:
        "../../scripts/export_timeline.py"


rule task_graph:
    input:
        records=f"{RESULTS}/raw/{{cell}}",
    output:
        graph=f"{RESULTS}/traces/{{cell}}/task-graph.dot",
    log:
        f"{LOGS}/traces/{{cell}}/task-graph.log",
    script:
        "../../scripts/export_task_graph.py"


# The first two for every training cell: `snakemake traces`.
rule traces:
    input:
        all_traces,

# Raw records -> tidy tables -> model tables.
from stallpoint.records.tables import EXTRAPOLATED_TABLES, MODEL_TABLES, TIDY_TABLES


localrules:
    extrapolate,


rule collect:
    input:
        marks=map(str, MARKS.values()),
        folders=cell_folders(*(KINDS if ARCHIVED else IMPORTED_KINDS)),
        code=code_of("collect.py"),
    output:
        **{table.name: f"{RESULTS}/tables/{table.name}.parquet" for table in TIDY_TABLES},
        impossible=f"{RESULTS}/tables/impossible.txt",
    log:
        f"{LOGS}/collect.log",
    localrule: SUBMIT is None
    resources:
        runtime=time_limits.tables_minutes(len(STUDY.cells)),
    script:
        "../../scripts/collect.py"


rule fit:
    input:
        **rules.collect.output,
        networks=NETWORKS_DESCRIBED,
        code=code_of("fit.py", lambda wildcards: PREDICTING_MODULES),
    output:
        **{table.name: f"{RESULTS}/models/{table.name}.parquet" for table in MODEL_TABLES},
    log:
        f"{LOGS}/fit.log",
    localrule: SUBMIT is None
    resources:
        mem_mb=lambda wildcards, input: memory_forecast.fit_memory(Path(input.runs), Path(input.iterations)),
        runtime=lambda wildcards, input: time_limits.tables_minutes(len(STUDY.cells), [Path(input.layers)]),
    params:
        models=STUDY.config["models"],
        shared_links=STUDY.shared_links,
        what_if=STUDY.config["what_if"],
        presets=STUDY.config["presets"],
        available=STUDY.available,
        rated=STUDY.rated,
        failures=STUDY.failures,
        epoch_samples=STUDY.config["epoch_samples"],
        seed=STUDY.config["seed"],
    script:
        "../../scripts/fit.py"


rule extrapolate:
    input:
        rates=rules.fit.output.rates,
        external=list(STUDY.config["external_tables"].values()),
        code=code_of("extrapolate_study.py"),
    output:
        **{table.name: f"{RESULTS}/models/{table.name}.parquet" for table in EXTRAPOLATED_TABLES},
    log:
        f"{LOGS}/extrapolate.log",
    params:
        names=list(STUDY.config["external_tables"]),
    script:
        "../../scripts/extrapolate_study.py"

# Raw records -> tidy tables -> model tables.
from stallpoint.records import MODEL_TABLES, TIDY_TABLES


localrules:
    collect,
    fit,


rule collect:
    input:
        folders=cell_folders(*KINDS),
    output:
        **{table.name: f"{RESULTS}/tables/{table.name}.parquet" for table in TIDY_TABLES},
    log:
        f"{LOGS}/collect.log",
    script:
        "../../scripts/collect.py"


rule fit:
    input:
        **rules.collect.output,
        code=source_files("models", "*.py"),
    output:
        **{table.name: f"{RESULTS}/models/{table.name}.parquet" for table in MODEL_TABLES},
    log:
        f"{LOGS}/fit.log",
    params:
        models=STUDY.config["models"],
        shared_links=[name for name, entry in STUDY.config["storage"].items() if entry["shared_link"]],
        what_if=STUDY.config["what_if"],
        presets=STUDY.config["presets"],
        available={name: entry["nodes"] for name, entry in STUDY.config["hardware"].items()},
        seed=STUDY.config["seed"],
    script:
        "../../scripts/fit.py"

# One zip of everything, for others: `snakemake archive`.


localrules:
    archive,


rule archive:
    input:
        **rules.collect.output,
        **rules.fit.output,
        **rules.extrapolate.output,
        folders=rules.collect.input.folders,
        results=final_targets(),
        claim_files=CLAIM_FILES,
        schema=SCHEMA_FILE,
    output:
        f"archives/{STUDY.name}.zip",
    log:
        f"{LOGS}/archive.log",
    params:
        workflow=folder_of_workflow,
        config=STUDY.config,
        # What holds names of nodes, users and paths, and is drawn again without them.
        drawn_by=["collect", "conclude", "report_page"],
        drawn=[*rules.collect.output, *rules.conclude.output, *rules.report_page.output],
    script:
        "../../scripts/archive.py"

# One zip of everything, for others: `snakemake archive`.


localrules:
    archive,


ARCHIVE = f"archives/{STUDY.name}.zip"
if command_line() and {"archive", ARCHIVE} & {*command_line().targets}:
    logger.info("", extra={"stallpoint": {"archive": ARCHIVE}})


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
        ARCHIVE,
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

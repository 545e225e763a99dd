# What users run from the root of a checkout: the workflow, used as those use it who deploy it from the catalog.
if not workflow.configfiles:

    configfile: "config/config.yaml"


module stallpoint:
    snakefile:
        "workflow/Snakefile"
    config:
        config


use rule * from stallpoint

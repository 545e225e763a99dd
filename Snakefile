# What users run from the root of a checkout; workflow/Snakefile is where the workflow catalog looks for it.
include: "workflow/Snakefile"


# What is made where nothing is named; a file that is included does not set it.
if workflow.is_rule("all"):
    workflow.default_target = "all"

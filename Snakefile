# What users run from the root of a checkout; workflow/Snakefile is where the workflow catalog looks for it.
include: "workflow/Snakefile"

# stallpoint: at how many nodes does distributed training stop getting faster, and why?
# Data flows one way; each arrow is a file below results/<study>/:
#   study -> cells -> raw records -> tidy tables -> model tables -> charts, conclusions, report
from snakemake.utils import min_version

min_version("9.10")


report: "workflow/report/workflow.rst"


if not workflow.configfiles:

    configfile: "config/config.yaml"


include: "workflow/rules/shared.smk"
include: "workflow/rules/compare.smk"


# Two studies that are there are compared without a third one.
if not {"old", "new"} & config.keys():

    include: "workflow/rules/common.smk"

    if not STUDY.config["archived"]:

        include: "workflow/rules/prepare.smk"
    include: "workflow/rules/published.smk"
    include: "workflow/rules/measure.smk"
    include: "workflow/rules/exchange.smk"
    include: "workflow/rules/model.smk"
    include: "workflow/rules/paper_figures.smk"
    include: "workflow/rules/papers.smk"
    include: "workflow/rules/report.smk"
    include: "workflow/rules/archive.smk"

    rule all:
        default_target: True
        input:
            final_targets(),
        localrule: True

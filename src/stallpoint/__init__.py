"""stallpoint: at how many nodes does distributed training stop getting faster, and why?

Data flows one way: study -> cells -> raw records -> tidy tables -> fitted models ->
charts and conclusions. Nothing in this package imports Snakemake or a scheduler.
"""

__version__ = "0.1.0"

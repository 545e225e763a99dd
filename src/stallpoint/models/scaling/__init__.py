"""Scaling laws fitted to throughput against workers, chosen by what they predict, with honest intervals.

`laws` has the laws and their priors, `noise` what they leave over, `posterior` the fit of one law, `scaling_law_choice`
the choice between them, `extrapolation` what comes of it for tables of rates, `study_curves` for
the study's own curves. docs/models/scaling-laws.md explains all of it.
"""

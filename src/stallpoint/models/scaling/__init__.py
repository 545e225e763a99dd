"""Scaling laws fitted to throughput by workers, weighed by their predictive accuracy.

`laws` has the laws and their priors, `noise` the residuals, `posterior` the fit of one law, `scaling_law_choice` the
choice between laws, `extrapolation` the results for tables of rates. docs/models/scaling-laws.md explains all of them.
"""

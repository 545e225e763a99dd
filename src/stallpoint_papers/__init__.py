"""Figures and tables of the papers, made again from a study; the core does without it."""

"""Figures and tables of the papers, regenerated from a study; the core runs without this package."""

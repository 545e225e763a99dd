"""Iterations predicted from their terms: the cluster as it is known, curves, and their tables."""

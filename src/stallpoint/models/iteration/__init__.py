"""Iterations predicted from their terms: properties of the cluster, curves, and their tables."""

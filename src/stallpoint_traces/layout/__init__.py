"""Parallelism over several ranks: groups, pipelines, rings, experts, and stragglers."""

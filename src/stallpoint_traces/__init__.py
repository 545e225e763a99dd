"""Traces of profilers: waits in iterations, layouts of ranks, and predictions for other worker counts.

`stallpoint_files` finds it by an entry point; the core does without it.
"""

"""Traces of profilers: waits in iterations, layouts of ranks, and predictions for other worker counts.

`stallpoint_files` finds this package by an entry point; the core runs without it.
"""

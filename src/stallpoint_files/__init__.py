"""Readers of files from users, and answers to them: rates, times to a target, logs of links, batch scripts, studies.

The core (`stallpoint`) runs without this package; `stallpoint_traces` adds profiler traces by an entry point.
"""

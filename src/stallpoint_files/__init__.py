"""Files that people bring, and answers to each: rates, times to a target, logs of links, batch scripts, studies.

The core (`stallpoint`) does without it; `stallpoint_traces` adds traces of profilers by an entry point.
"""

"""What people bring: rates, times to a target, logs of links, batch scripts, results of studies, and what each says.

The core (`stallpoint`) does without it; `stallpoint_traces` adds traces of profilers by an entry point.
"""

"""Traces of profilers: what each iteration waited for, how ranks are laid out, and other worker counts.

`stallpoint_files` finds it by an entry point; the core does without it.
"""

"""Formats of traces, one file for each."""

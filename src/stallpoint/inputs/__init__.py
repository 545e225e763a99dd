"""Readers of other programs' files, one for each format, and the content of traces."""

"""Cells from the files of other programs, as records of a study."""

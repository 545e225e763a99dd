"""Archives: a study's records, results and workflow in one zip, for others to check, redraw and compare."""

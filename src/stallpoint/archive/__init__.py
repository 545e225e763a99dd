"""Archives: a study's records, results and workflow in one zip, which others can check, redraw and compare."""

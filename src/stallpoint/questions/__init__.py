"""Questions to a study: a module for each, with its columns, rows, words and section."""

"""Questions to a study: one module for each, with its columns, rows, words and section."""

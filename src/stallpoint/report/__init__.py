"""Report: page, slides, charts and exhibits of papers, drawn from the tables."""

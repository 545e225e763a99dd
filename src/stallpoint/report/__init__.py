"""Report: page, slides, charts and exhibits of papers, from the tables."""

"""The report: page, slides, charts, exhibits of papers; all of them draw what the tables say."""

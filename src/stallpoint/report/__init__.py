"""The report of a study, made from its result tables: web page, slides, charts and typeset tables."""

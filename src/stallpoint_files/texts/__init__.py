"""Texts as people wrote them: grids, headings, numbers, sentences."""

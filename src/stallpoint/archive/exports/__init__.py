"""Records of a cell written in formats of other programs."""

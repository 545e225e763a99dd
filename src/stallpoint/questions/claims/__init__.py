"""Claims of papers and studies, as data, and whether a study's tables support them: claim_files.py reads the claims."""

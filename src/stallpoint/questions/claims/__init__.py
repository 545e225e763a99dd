"""What papers claim, as data, and whether a study's tables support it: claim_files.py reads the claims."""

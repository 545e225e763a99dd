"""Claims of papers and studies as data, and whether the tables of a study support them (`claim_files` reads claims)."""

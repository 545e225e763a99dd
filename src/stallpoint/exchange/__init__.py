"""Records in and out: other programs' files to raw records, and raw records to files that others read."""

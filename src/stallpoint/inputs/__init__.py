"""Files of other programs: readers for each format, and what traces hold."""

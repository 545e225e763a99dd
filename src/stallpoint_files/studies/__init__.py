"""Results of studies, and records of a probe."""

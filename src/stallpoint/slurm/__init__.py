"""Slurm's queue and accounts, orphaned jobs, and the requests of a job by its own environment."""

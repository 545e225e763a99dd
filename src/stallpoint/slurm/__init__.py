"""Slurm: queue, accounts, orphaned jobs, and a job's own requests."""

"""Slurm's queue and accounts, jobs left over, and what a job's own environment says."""

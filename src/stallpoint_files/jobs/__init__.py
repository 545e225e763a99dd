"""Jobs: batch scripts, and what the accounts of Slurm say of those that ended."""

"""Jobs: batch scripts, and Slurm's accounts of ended jobs."""

"""Links between workers: logs of all-reduces and of NCCL."""

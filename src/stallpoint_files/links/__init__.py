"""What links between workers carry: logs of all-reduces and of NCCL."""

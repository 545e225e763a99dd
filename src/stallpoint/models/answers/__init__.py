"""What the curves say: where scaling stalls and why, what would help, what to measure next, how far off models are."""

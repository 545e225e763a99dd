"""Answers from fitted curves: where scaling stalls and why, which changes would help, what to measure next, and model
errors."""

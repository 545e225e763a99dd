"""Answers from fitted curves: where scaling stalls and why, remedies, what to measure next, and model errors."""

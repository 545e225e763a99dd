"""Kinds of job, one module each, and what they share."""

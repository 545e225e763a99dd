"""Measurements by kind of job, one module each, and shared parts."""

"""Profiler traces of training: read as columns, and explained without running anything."""

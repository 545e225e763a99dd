"""Readings of the machine around each measurement."""

"""Sections of the report's page."""

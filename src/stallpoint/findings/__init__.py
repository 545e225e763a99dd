"""Findings of the tables: verdicts, causes, remedies, trust, and claims."""

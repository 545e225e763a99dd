"""Foundations of the models: statistics over visits, measured points and their parts, tables and checks."""

"""Readers of studies' results and of a probe's records, and answers to them."""

"""Logs of training programs: their lines, their rates, and on how many workers they ran."""

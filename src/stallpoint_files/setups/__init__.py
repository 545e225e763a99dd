"""Trainings in words: chips, models and links from their data sheets, and what can be expected of them."""

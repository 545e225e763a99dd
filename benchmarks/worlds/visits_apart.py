"""Visits 5 % apart."""

from worlds.world import World

WORLD = World("visits 5 % apart", visits=0.05)

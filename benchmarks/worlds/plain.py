"""A cluster that is as the models take it."""

from worlds.world import World

WORLD = World("plain")

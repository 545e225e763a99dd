"""Three of ten visits are 1.25 times as slow."""

from worlds.world import World

WORLD = World("30 % of visits slow", visits=0.02, slow_visits=0.3)

"""Three of ten cells are 1.25 times as slow, each measured in one placement."""

from worlds.world import World

WORLD = World("30 % of cells slow, one placement", slow_cells=0.3)

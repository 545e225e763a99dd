"""The same, each measured in two placements."""

from worlds.world import World

WORLD = World("30 % of cells slow, two placements", slow_cells=0.3, study={"repeats": 2})

"""One job has 1 and 2 nodes, another 4 and 8: 5 % apart."""

from worlds.world import World

WORLD = World("jobs 5 % apart", jobs=0.05)

"""Each doubling beyond 4 workers makes computing 35 % slower; 4 are measured."""

from worlds.world import World, WorldTruth

WORLD = World("costs beyond 4", WorldTruth(slow_beyond=4, slow_doubling=1.35), nodes=(1, 2, 4))

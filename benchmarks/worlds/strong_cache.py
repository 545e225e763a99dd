"""The same with 60 % less: 8 workers are more than 8 times as fast as one."""

from worlds.world import World, WorldTruth

WORLD = World("strong cache", WorldTruth(cache_below=33, cache=0.4, alpha=20e-6, beta=2e-11))

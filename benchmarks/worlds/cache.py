"""A worker with fewer than 12 samples computes in its cache: each sample takes 35 % less."""

from worlds.world import World, WorldTruth

WORLD = World("cache", WorldTruth(cache_below=12, cache=0.65, alpha=50e-6))

"""The same with 600 samples/s, which bind from 2 workers on."""

from worlds.world import World, WorldTruth

WORLD = World("loader bound at 2", WorldTruth(storage_rate=600.0), without=("storage_reads", "storage_passes"))

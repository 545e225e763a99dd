"""A storage that gives all nodes 1,200 samples/s; readers' times are recorded, the storage is not."""

from worlds.world import World, WorldTruth

WORLD = World("loader bound at 8", WorldTruth(storage_rate=1200.0), without=("storage_reads", "storage_passes"))

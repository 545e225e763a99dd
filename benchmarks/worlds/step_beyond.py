"""Beyond 8 workers computing is 2 times as slow; 8 are measured."""

from worlds.world import World, WorldTruth

WORLD = World("2 × slower beyond 8", WorldTruth(slow_beyond=8, slow=2.0))

"""More workers gain nothing, and visits are 5 % apart."""

from dataclasses import replace

from worlds.world import NETWORK, World, WorldTruth

LAYERS = tuple(replace(layer, fixed=layer.fixed + 64 * layer.each, each=0.0) for layer in NETWORK)
WORLD = World("flat, visits 5 % apart", WorldTruth(layers=LAYERS, beta=2e-11, alpha=20e-6), visits=0.05)

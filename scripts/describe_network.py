"""Build one network, try it, and write what it is made of."""

from pathlib import Path

from stallpoint.networks import find
from stallpoint.networks.description import describe
from stallpoint.networks.own import own_network
from stallpoint.parquet import to_arrow, write
from stallpoint.program import program
from stallpoint.records import NETWORK_LAYERS

with program(Path(snakemake.log[0])):
    name, own = snakemake.wildcards.network, snakemake.params.own
    network = own_network(name, own) if own else find(name)
    write(NETWORK_LAYERS, to_arrow(NETWORK_LAYERS, describe(network)), Path(snakemake.output[0]))

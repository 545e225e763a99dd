"""Describe the layers of one network: built and tried, or if that is impossible from traces or records."""

from pathlib import Path

from stallpoint.archive.importing import describe_traced
from stallpoint.errors import program
from stallpoint.networks import find_network
from stallpoint.networks.described import describe_recorded
from stallpoint.networks.description import describe
from stallpoint.networks.own import own_network
from stallpoint.records.parquet import to_arrow, write
from stallpoint.records.tables import NETWORK_LAYERS

with program(Path(snakemake.log[0])):
    name, own = snakemake.wildcards.network, snakemake.params.own
    if snakemake.input.traces:
        rows = describe_traced(name, snakemake.input.traces)
    elif snakemake.input.layers:
        rows = describe_recorded(name, Path(snakemake.input.layers[0]))
    else:
        rows = describe(own_network(name, own) if own else find_network(name))
    write(NETWORK_LAYERS, to_arrow(NETWORK_LAYERS, rows), Path(snakemake.output[0]))

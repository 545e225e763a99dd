"""What a network is made of that a command trains: as the layers tell that its probe timed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq


def describe_recorded(network: str, layers: Path) -> dict[str, list[Any]]:
    """Columns of `NETWORK_LAYERS` for a command, from the collected table `layers`.

    They say what it sends, not what it learns and multiplies: those columns are empty. A command whose layers nobody
    timed is one layer that nothing is known of.
    """
    names = ["layer_index", "layer", "layer_type", "gradient_bytes"]
    rows = pq.read_table(layers, columns=names, filters=pc.field("network") == network)
    found = rows.group_by(names).aggregate([]).sort_by("layer_index").to_pydict()
    if not found["layer"]:
        found = {"layer_index": [0], "layer": [network], "layer_type": ["other"], "gradient_bytes": [0]}
    count = len(found["layer"])
    unknown = dict.fromkeys(("parameters", "multiply_adds", "handed_on", "outputs"), [None] * count)
    return {"network": [network] * count, **found, **unknown}

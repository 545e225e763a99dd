"""Layers of networks, read from description files or from records of a probe. This module imports no tensor library."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from stallpoint.strategies.division import Cuts

if TYPE_CHECKING:
    import pandas as pd


def cuts_of(layers: pd.DataFrame) -> Cuts:
    """Return the sizes of layers by which a network is cut or split, from its rows of `tables.NETWORK_LAYERS`."""
    work = layers["multiply_adds"].fillna(0).astype(int)
    activation_bytes, outputs = (
        tuple(int(size) if size > 0 else None for size in layers[name].fillna(0))
        for name in ("activation_bytes", "outputs")
    )
    return Cuts(tuple(work), activation_bytes, outputs)


def describe_recorded(network: str, layers: Path) -> dict[str, list[Any]]:
    """Return the columns of `NETWORK_LAYERS` for a training script, from the collected table `layers`.

    Gradient sizes are known from the script's probe; the columns of parameters and products are empty. A script without
    timed layers counts as a single layer of type ``other``.
    """
    key_columns = ["layer_index", "layer", "layer_type", "gradient_bytes"]
    rows = pq.read_table(layers, columns=key_columns, filters=pc.field("network") == network)
    columns = rows.group_by(key_columns).aggregate([]).sort_by("layer_index").to_pydict()
    if not columns["layer"]:
        columns = {"layer_index": [0], "layer": [network], "layer_type": ["other"], "gradient_bytes": [0]}
    count = len(columns["layer"])
    empty_columns = dict.fromkeys(("parameters", "multiply_adds", "activation_bytes", "outputs"), [None] * count)
    return {"network": [network] * count, **columns, **empty_columns}

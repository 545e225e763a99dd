"""Layers of each network, and its published properties with ours."""

from __future__ import annotations

import math
from collections import Counter
from html import escape

import pandas as pd

from stallpoint.report.charts import Tables
from stallpoint.report.exhibits.published import HEAD, texts
from stallpoint.report.html import Section, paragraph, table
from stallpoint.text import number

NETWORK_HEAD = [
    "network",
    "layers",
    "parameters",
    "gradients",
    "multiply-adds of a sample's forward pass",
    "layer types",
]
MAX_TYPES = 6


def networks(tables: Tables) -> Section:
    """Return the size of each network, from the table ``network_layers``, and ``published`` where there is one."""
    layers, published = tables.get("network_layers"), tables.get("published")
    if layers is None or layers.empty:
        return Section("networks", "Networks", paragraph("No network was described."))
    blocks = [table(NETWORK_HEAD, *_rows(layers))]
    if published is not None and not published.empty:
        blocks.append(f"<h3>{escape(published['source'].iloc[0])}, beside ours</h3>")
        rows = texts(published)
        blocks.append(table(HEAD, rows, [{"network": network} for _, network, *_ in rows]))
    return Section("networks", "Networks", "\n".join(blocks))


def _rows(layers: pd.DataFrame) -> tuple[list[list[str]], list[dict[str, str]]]:
    """Return a row for each network, and its name."""
    found = {str(name): rows for name, rows in layers.groupby("network", sort=False)}
    return [_network(name, rows) for name, rows in found.items()], [{"network": name} for name in found]


def _network(name: str, layers: pd.DataFrame) -> list[str]:
    """Return one network's row; a dash where traces lack the value."""
    totals = layers[["parameters", "gradient_bytes", "multiply_adds"]].sum(min_count=1)
    parameters, size, work = totals.astype(float)
    types = ", ".join(f"{count} {kind}" for kind, count in Counter(layers["layer_type"]).most_common(MAX_TYPES))
    return [
        name,
        str(len(layers)),
        "-" if math.isnan(parameters) else f"{parameters:,.0f}",
        f"{number(size / 1e6)} MB",
        "-" if math.isnan(work) else f"{number(work / 1e9)} billion",
        types,
    ]

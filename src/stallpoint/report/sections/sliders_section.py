"""What if, by sliders: the DAG model of each network's fastest curve, which the page's script interpolates."""

from __future__ import annotations

from html import escape
from typing import Any

import pandas as pd

from stallpoint.models.answers.what_if import INTERPOLATED
from stallpoint.report.charts import Tables
from stallpoint.report.charts.labels import AXES, label
from stallpoint.report.html import Section, paragraph

SLIDERS = {
    "bandwidth": ("bandwidth", -1.0, 2.0),
    "latency": ("latency", -1.0, 1.0),
    "compute_speed": ("compute speed", -0.3, 1.0),
    "gradient_bytes": ("gradient bytes", -0.6, 0.0),
}
"""Factors with their names and the ends of their sliders, as powers of ten."""


def sliders(tables: Tables) -> tuple[list[Section], list[dict[str, Any]]]:
    """Return the section, none without the table, and the curves for the script."""
    grid = tables.get("what_if_grid")
    if grid is None or grid.empty:
        return [], []
    curves = [_curve(curve) for _, curve in grid.groupby(list(AXES), sort=False)]
    batches = sorted(grid["batch_factor"].unique())
    controls = "".join(_slider(name, *ends) for name, ends in SLIDERS.items()) + _menu(batches)
    text = paragraph(
        "Predicted by the DAG model for the fastest curve of each network, without interval: factors on what was "
        "measured. A latency of × 0.1 is ten times better."
    )
    html = (
        f'{text}<form class="sliders">{controls}</form><div class="wide" id="what-if-table" aria-live="polite"></div>'
    )
    return [Section("sliders", "What if, by sliders", html)], curves


def _slider(name: str, title: str, low: float, high: float) -> str:
    return (
        f'<label><span>{escape(title)}</span><input type="range" name="{name}" min="{low}" max="{high}" step="0.01" '
        f'value="0"><output name="{name}-shown">× 1</output></label>'
    )


def _menu(batches: list[float]) -> str:
    options = "".join(f'<option value="{factor:g}">× {factor:g}</option>' for factor in batches)
    return f'<label><span>mini-batch</span><select name="batch">{options}</select></label>'


def _curve(rows: pd.DataFrame) -> dict[str, Any]:
    """Return a curve: its name, the ticks of each axis, and for each mini-batch and worker count the times in order."""
    first = rows.iloc[0]
    points = [
        {
            "batch": float(at["batch_factor"].iloc[0]),
            "ranks": int(at["ranks"].iloc[0]),
            "samples": int(at["global_batch"].iloc[0]),
            "seconds": [float(f"{one:.5g}") for one in at.sort_values(list(INTERPOLATED))["iteration"]],
        }
        for _, at in rows.groupby(["batch_factor", "ranks"])
    ]
    return {
        "name": label(rows.iloc[:1], ["network", "hardware", "scaling", "sync", "batch", "workers_per_node"]).iloc[0],
        "network": str(first["network"]),
        "hardware": str(first["hardware"]),
        "ticks": [sorted(map(float, rows[name].unique())) for name in INTERPOLATED],
        "points": points,
    }

"""The choice of network, hardware and storage at the top of the page."""

from __future__ import annotations

from html import escape

from stallpoint.report.charts import Tables
from stallpoint.report.charts.labels import FILTERS
from stallpoint.report.charts.theme import natural


def filters(tables: Tables) -> str:
    """Return a group of boxes for each axis that takes several values in any table."""
    groups = "".join(_group(name, values) for name, values in _choices(tables).items() if len(values) > 1)
    return (
        f'<form id="filters" aria-label="Filters"{"" if groups else " hidden"}>{groups}'
        '<p><output id="shown"></output> <button type="button" id="reset">Show all</button></p></form>'
    )


def _choices(tables: Tables) -> dict[str, list[str]]:
    """Return the values of each axis in any table."""
    found = {
        name: {str(value) for frame in tables.values() if name in frame for value in frame[name].dropna().unique()}
        for name in FILTERS
    }
    return {name: sorted(values - {""}, key=natural) for name, values in found.items()}


def _group(name: str, values: list[str]) -> str:
    boxes = "".join(
        f'<label><input type="checkbox" name="{name}" value="{escape(value)}"><span>{escape(value)}</span></label>'
        for value in values
    )
    return f"<fieldset><legend>{name}</legend>{boxes}</fieldset>"

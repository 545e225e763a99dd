"""Inputs of exhibits from a study: its networks, machines and devices, and words for missing ones."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from stallpoint.report.charts import axes, theme
from stallpoint_papers.exhibits import Material, Missing

KEUPER_NETWORKS = ("alexnet", "googlenet")
SHI_NETWORKS = ("alexnet", "googlenet", "resnet50")
GUIDE_NETWORKS = ("inception-v3", "resnet101")
KEUPER_SAYS = "keuper-2016-exhibits"
"""File with Keuper & Pfreundt's statements on their exhibits."""
BY_NODES, BY_BATCH = ("nodes", "nodes", "nodes"), ("batch", "worker_batch", axes.BATCH)
"""Horizontal axes: field in the published statements, our column, and title."""


@dataclass(frozen=True)
class StudyMachine:
    """A hardware entry of the study: known properties of its nodes."""

    hardware: str
    device: str
    workers_per_node: int
    processor: str
    """Model of the GPU, or of a computing CPU; the entry's name where no job recorded it."""
    tuned: bool
    """Whether cuDNN or oneDNN is used; assumed of imported records."""


def machines(material: Material) -> dict[str, StudyMachine]:
    """Return the hardware entries that ran or were imported, by name."""
    runs = material.tables["runs"]
    runs = runs[runs["status"] == "ok"].sort_values(["hardware", "cell"], kind="stable")
    environments = material.tables["environments"].drop_duplicates("cell").set_index("cell")
    found: dict[str, StudyMachine] = {}
    for hardware, cells in runs.groupby("hardware"):
        settings = [json.loads(text) for text in cells["settings"]]
        recorded = environments[environments.index.isin(cells["cell"])]
        device = settings[0]["device"]
        models = [] if recorded.empty else recorded["gpu_model" if device == "cuda" else "cpu_model"].tolist()
        tuned = recorded.empty or bool(recorded["cudnn_in_force" if device == "cuda" else "onednn_in_force"].all())
        # The largest number of workers, as jobs with one worker (scaling: compute, sgemm) always record 1.
        workers = max(entry["workers_per_node"] for entry in settings)
        processor = models[0] if models else str(hardware)
        found[str(hardware)] = StudyMachine(str(hardware), device, workers, processor, tuned)
    return found


def environments(material: Material, hardware: str) -> pd.DataFrame:
    """Return the environments recorded by jobs of a hardware entry."""
    runs, found = material.tables["runs"], material.tables["environments"]
    return found[found["cell"].isin(runs.loc[runs["hardware"] == hardware, "cell"])]


def rows(
    material: Material, table: str, networks: Collection[str], cells: str, *, keep: Mapping[str, Any] | None = None
) -> pd.DataFrame:
    """Return rows of a table for these networks (and values of other columns); raise `Missing` asking for `cells`."""
    frame = material.tables.get(table)
    if frame is None or frame.empty:
        raise Missing(f"no {cells} of {' or '.join(networks)}")
    chosen = frame["network"].isin(list(networks))
    for column, value in (keep or {}).items():
        chosen &= frame[column].isin(list(value)) if isinstance(value, list | tuple | set) else frame[column] == value
    if not chosen.any():
        raise Missing(f"no {cells} of {' or '.join(networks)}")
    return frame[chosen].copy()


def communicates(frame: pd.DataFrame) -> pd.Series[bool]:
    """Return whether each row of ``predictions`` communicates; one worker, and the preset `none`, do not."""
    return (frame["predicted_communication"] > 0) | (frame["measured_communication"] > 0)


def lacking(frame: pd.DataFrame, networks: Iterable[str], cells: str) -> tuple[str, ...]:
    """Return a text for each of the paper's networks missing from the frame."""
    present = set(frame["network"])
    return tuple(f"no {cells} of {network}" for network in networks if network not in present)


def statements(material: Material, file: str, exhibit: str) -> list[dict[str, Any]]:
    """Return the paper's statements on an exhibit."""
    entries: list[dict[str, Any]] = material.published[file]["exhibits"].get(exhibit) or []
    return entries


def _marks(
    entry: Mapping[str, Any], position: float | list[float], x: alt.X, axis: str, y_title: str | None
) -> Iterator[alt.Chart]:
    ends = position if isinstance(position, list) else [position, position]
    tip = alt.Tooltip("says:N", title="published")
    data = pd.DataFrame([{axis: ends[0], "until": ends[1], "value": entry.get("speedup"), "says": entry["says"]}])
    chart = alt.Chart(data)
    if "speedup" in entry:
        colour = theme.COLOURS["layer_type"].get(entry.get("layer_type", ""), theme.GREY)
        cross = chart.mark_point(shape="cross", angle=45, size=110, strokeWidth=2, clip=True, color=colour)
        yield cross.encode(x=x, y=alt.Y("value:Q", title=y_title), tooltip=tip)
        return
    if ends[0] == ends[1]:
        yield chart.mark_rule(style="published", clip=True).encode(x=x, tooltip=tip)
    else:
        yield chart.mark_rect(color=theme.GREY, opacity=0.16, clip=True).encode(x=x, x2="until:Q", tooltip=tip)
    name = chart.mark_text(angle=270, align="right", dx=-3, dy=6, fontSize=7, clip=True, color=theme.GREY)
    yield name.encode(x=x, y=alt.value(0), text=alt.value("published"))


def with_published(
    material: Material, exhibit: str, chart: alt.FacetChart, axis: tuple[str, str, str], y_title: str | None = None
) -> alt.FacetChart:
    """Return the chart with Keuper & Pfreundt's statements on the exhibit, behind the measurements.

    Grey bands and lines mark positions on `axis` (as `BY_NODES`), crosses also a published speedup. The marks' data are
    separate from the chart's, so that every panel shows them.
    """
    field, ours, title = axis
    x = alt.X(f"{ours}:Q", title=title)
    entries = statements(material, KEUPER_SAYS, exhibit)
    layers = [one for entry in entries if field in entry for one in _marks(entry, entry[field], x, ours, y_title)]
    layered: alt.FacetChart = chart.copy(deep=True)
    layered.spec.layer = [*layers, *layered.spec.layer]
    return layered

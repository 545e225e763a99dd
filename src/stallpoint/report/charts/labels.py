"""Preparation of data frames for charts: labels of panels and series, numbers as text, few digits.

A chart has a *panel* for each combination of the axes that vary, except the preset. A panel has a *series* for each
preset, in the preset's colour and shape.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pandas as pd

from stallpoint.base.section import FILTERS
from stallpoint.base.stall import Verdict
from stallpoint.records.tables import SERIES
from stallpoint.report.charts import NoData, Tables
from stallpoint.strategies.presets import NONE
from stallpoint.study.workers import placement_in_words as in_words
from stallpoint.text import number

AXES = tuple(column.name for column in SERIES)
PANEL_AXES = ("storage", "batch", "prefetch", "workers_per_node")
"""Axes that name panels if they vary, as colours show presets."""


def rows(tables: Tables, name: str, cells: str) -> pd.DataFrame:
    """Return a copy of the table `name`; if it is empty or absent, raise `NoData` naming the missing `cells`."""
    frame = tables.get(name)
    if frame is None or frame.empty:
        raise NoData(f"no {cells} (table {name} is empty)")
    return frame.copy()


def axis_text(frame: pd.DataFrame, axis: str) -> pd.Series[str]:
    """Return the values of one axis in words: ``wfbp``, ``prefetch 2``, ``B = 256``."""
    if axis == "batch":
        symbol = frame["scaling"].map({"strong": "B = "}).fillna("b = ")
        return symbol + frame["batch"].astype(str)
    if axis == "prefetch":
        return ("prefetch " + frame["prefetch"].astype(str)).where(frame["prefetch"] > 0, "no prefetch")
    if axis == "workers_per_node":
        several = frame[axis].map({1: " worker per node"}).fillna(" workers per node")
        return frame[axis].astype(str) + several
    return frame[axis].astype(str) + (" scaling" if axis == "scaling" else "")


def interleaved_order(frame: pd.DataFrame) -> pd.Index[Any]:
    """Return the index of `frame`, reordered so that every network, hardware and storage takes its turn."""
    owners = [name for name in FILTERS if name in frame]
    position = frame.groupby(owners, dropna=False).cumcount() if owners else pd.Series(0, index=frame.index)
    return position.sort_values(kind="stable").index


def label(frame: pd.DataFrame, axes: list[str]) -> pd.Series[str]:
    """Return a text for each row: its values of the `axes`, joined by dots. "1 worker per node" is omitted."""
    axes_shown = [axis for axis in axes if axis != "workers_per_node" or (frame[axis] > 1).any()]
    texts = [axis_text(frame, axis) for axis in axes_shown]
    joined = pd.Series("", index=frame.index)
    for i, text in enumerate(texts):
        joined = joined + (" · " if i else "") + text
    return joined


def varies(frame: pd.DataFrame, axis: str) -> bool:
    """Return whether an axis has several values. Mini-batches are compared only within one kind of scaling."""
    if axis == "batch":
        return bool((frame.groupby("scaling")["batch"].nunique() > 1).any())
    return bool(frame[axis].nunique() > 1)


def arrange(frame: pd.DataFrame, *, own_panel: bool = False) -> pd.DataFrame:
    """Return `frame` with the names of its ``panel`` and ``series``; with `own_panel`, each curve has its own panel."""
    varying_axes = [axis for axis in (*PANEL_AXES, *(["sync"] if own_panel else [])) if varies(frame, axis)]
    first, second = label(frame, ["network", "hardware"]), label(frame, ["scaling", *varying_axes])
    arranged_frame = frame.assign(panel=first + "\n" + second, series=frame["sync"])
    return arranged_frame.sort_values([*AXES, "ranks"], kind="stable")


def with_interval(frame: pd.DataFrame, name: str, unit: str = "", scale: float = 1.0) -> list[str]:
    """Return the estimate `name` of each row as a text for tooltips: ``1.83 (1.71 to 1.95)``."""
    suffix = f" {unit}" if unit else ""
    texts = []
    for value, low, high in zip(frame[name], frame[f"{name}_low"], frame[f"{name}_high"], strict=True):
        interval = "" if pd.isna(low) or pd.isna(high) else f" ({number(low * scale)} to {number(high * scale)})"
        texts.append(number(value * scale) + suffix + interval)
    return texts


def estimate(frame: pd.DataFrame, name: str, unit: str = "", scale: float = 1.0) -> pd.DataFrame:
    """Return `frame` with the estimate `name`, times `scale`: ``value``, ``low``, ``high``, and ``shown`` as a text.

    Rows without a value are dropped. If the interval is unknown, its ends are the value.
    """
    known = frame[frame[name].notna()]
    value = known[name] * scale
    return known.assign(
        value=value,
        low=(known[f"{name}_low"] * scale).fillna(value),
        high=(known[f"{name}_high"] * scale).fillna(value),
        shown=with_interval(known, name, unit, scale),
    )


def compact_rows(frame: pd.DataFrame, fields: Collection[str]) -> pd.DataFrame:
    """Return only the columns that a chart reads, at five significant digits, so that specs are small and reproducible.

    The columns ``panel``, ``lead`` and those of the report's filters are always kept.
    """
    kept = frame[[name for name in frame if name in {*fields, "panel", "lead", *FILTERS}]].copy()
    for column in kept.select_dtypes("float"):
        kept[column] = [float(f"{value:.5g}") for value in kept[column]]
    return kept.reset_index(drop=True)


def placement_in_words(row: Any) -> str:
    """Return a row's placement in words: ``4 nodes``, ``8 workers (2 nodes)``, or ``4 processes``."""
    return in_words(int(row["ranks"]), int(row["workers_per_node"]), is_one_machine=bool(row.get("one_machine", False)))


def with_machines(frame: pd.DataFrame, tables: Tables) -> pd.DataFrame:
    """Return `frame` with ``one_machine``, from the table ``stalling``: whether the curve ran on a single machine."""
    judged = tables.get("stalling")
    if judged is None or "one_machine" in frame:
        return frame
    known = frame.merge(judged[[*AXES, "one_machine"]], on=list(AXES), how="left")
    return known.assign(one_machine=known["one_machine"].eq(True)).set_index(frame.index)


def largest_row(frame: pd.DataFrame, column: str) -> Any:
    """Return the row with the largest value in a column; if there are several, the first."""
    return frame.sort_values(column, ascending=False, kind="stable").iloc[0]


def smallest_row(frame: pd.DataFrame, column: str) -> Any:
    """Return the row with the smallest value in a column; if there are several, the first."""
    return frame.sort_values(column, kind="stable").iloc[0]


def sort_by_lead(frame: pd.DataFrame, tables: Tables) -> pd.DataFrame:
    """Return `frame` with the flag ``lead``. Leading curves come first; among them, stalls before other verdicts.

    A curve leads if it is the fastest of its network, hardware and verdict: it has the most samples per second at any
    measured number of workers, as on the report's cards. Predicted rates count only if nothing was measured.
    """
    frame = with_machines(frame, tables)
    curves = frame[list(AXES)].drop_duplicates()
    known = tables.get("predictions")
    if known is not None and len(known):
        known = known[known["sync"] != NONE]
        bases = ["measured", "predicted"]
        rates = {basis: known["global_batch"] / known[f"{basis}_iteration"] for basis in bases}
        fastest = known.assign(**rates).groupby(list(AXES))[bases].max().reset_index()
        curves = curves.merge(fastest, on=list(AXES), how="left")
        curves = curves.sort_values(bases, ascending=False, kind="stable", na_position="last")
    curves = curves.assign(turn=0)
    judged = tables.get("stalling")
    if judged is not None and len(judged):
        rank_of_verdict = {str(verdict): turn for turn, verdict in enumerate(Verdict)}
        known = judged[list(AXES)].assign(turn=judged["verdict"].map(rank_of_verdict))
        curves = curves.drop(columns="turn").merge(known, on=list(AXES), how="left")
    leading = curves.drop_duplicates(["network", "hardware", "turn"])[[*AXES, "turn"]]
    marked_frame = frame.merge(leading.assign(lead=True), on=list(AXES), how="left")
    marked_frame["lead"] = marked_frame["lead"].notna()
    return marked_frame.sort_values(["lead", "turn"], ascending=[False, True], kind="stable").drop(columns="turn")

"""Predicted against measured iteration time (Shi et al., Fig. 4)."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.charts import NoData, Tables, axes, marks
from stallpoint.charts.frames import AXES, compact, label, rows, with_interval


def draw(tables: Tables) -> alt.FacetChart:
    """One point for each combination that was both predicted and measured, a panel for each hardware."""
    frame = rows(tables, "predictions", "train cells")
    frame = frame[frame["predicted_iteration"].notna() & frame["measured_iteration"].notna()]
    if frame.empty:
        raise NoData("no train cells whose layers, all-reduce and storage were all measured")
    frame = frame.assign(
        panel=frame["hardware"],
        basis="measured",
        series=label(frame, [axis for axis in AXES if axis not in ("network", "hardware")]),
        predicted=with_interval(frame, "predicted_iteration", "s"),
        measured=with_interval(frame, "measured_iteration", "s"),
        off=[f"{error:+.1%}" for error in frame["error"]],
    )
    for name in ("predicted_iteration", "measured_iteration"):
        for end in ("low", "high"):
            frame[f"{name}_{end}"] = frame[f"{name}_{end}"].fillna(frame[name])
    scale, axis = axes.log10(frame[["predicted_iteration", "measured_iteration"]].to_numpy().ravel())
    x = alt.X("measured_iteration:Q", title="measured iteration [s]", scale=scale, axis=axis)
    y = alt.Y("predicted_iteration:Q", title="predicted iteration [s]", scale=scale, axis=axis)
    drawn = pd.concat([frame, _diagonal(frame, scale["domain"])])
    ends = [f"{name}_iteration{end}" for name in ("predicted", "measured") for end in ("", "_low", "_high")]
    drawn = compact(drawn, ["panel", "network", "series", "nodes", "basis", *ends, "predicted", "measured", "off"])
    return marks.panels(_layers(frame, x, y), drawn)


def _diagonal(frame: pd.DataFrame, domain: list[float]) -> pd.DataFrame:
    """Both ends of the line of agreement, in every panel."""
    ends = pd.DataFrame({"measured_iteration": domain, "predicted_iteration": domain, "basis": "ideal"})
    return frame[["panel"]].drop_duplicates().merge(ends, how="cross")


def _layers(frame: pd.DataFrame, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    colour = marks.colour(frame, "network")
    base = marks.only("measured").encode(color=colour)
    tips = marks.tips(
        network="network", series="series", nodes="nodes", measured="measured (90 % interval)",
        predicted="predicted (90 % interval)", off="prediction off by",
    )  # fmt: skip
    return [
        marks.only("ideal").mark_line(style="ideal").encode(x=x, y=y),
        base.mark_rule(clip=True).encode(x=marks.at(x, "measured_iteration_low"), x2="measured_iteration_high:Q", y=y),
        base.mark_rule(clip=True).encode(
            x=x, y=marks.at(y, "predicted_iteration_low"), y2="predicted_iteration_high:Q"
        ),
        base.mark_point(filled=True, size=55, opacity=1).encode(
            x=x,
            y=y,
            shape=alt.Shape("network:N", scale=alt.Scale(domain=colour["scale"]["domain"]), legend=colour["legend"]),
            tooltip=tips,
        ),
    ]

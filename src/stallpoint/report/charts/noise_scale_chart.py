"""The noise scale of gradients during training, and the critical mini-batch by steps to a target."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.models.convergence.noise_scale import PARTS
from stallpoint.models.convergence.steps import TRAINED
from stallpoint.report.charts import NoData, Tables, axes, marks, shapes, theme
from stallpoint.report.charts.labels import estimate, rows, with_interval
from stallpoint.text import number

CELLS = "convergence cells with noise_steps on several workers"
KEY = list(TRAINED)


def draw(tables: Tables) -> alt.FacetChart:
    """Draw a line for each B over the parts of its training; the critical mini-batch as a dashed line with its band."""
    noise = _noise(tables)
    critical = _critical(tables)
    critical = critical[critical["panel"].isin(noise["panel"])]
    y = axes.log10_y([*axes.reach(noise), *critical["value"]], "mini-batch [samples]")
    x = alt.X("part:O", title="quarter of the training", axis=alt.Axis(labelAngle=0))
    names = list(noise["series"].unique())
    colour = alt.Color("series:N", scale=theme.colours("series", names), legend=alt.Legend(title="noise scale at"))
    steps, tooltip = marks.only("critical"), marks.tips(shown="critical mini-batch (90 % interval)")
    behind = [
        steps.mark_rect(style="near").encode(y=marks.at(y, "low"), y2="high:Q"),
        steps.mark_rule(strokeDash=theme.DASHED, style="zero").encode(y=y, tooltip=tooltip),
    ]
    tips = {"series": "at", "part": "quarter", "shown": "noise scale (90 % interval)"}
    frame = pd.concat([noise, axes.clipped(critical, y)])
    return shapes.curves(frame, x, y, tips, [shapes.MEASURED], colour=colour, behind=behind)


def finding(tables: Tables) -> str:
    """Return the ratio of noise scale and critical mini-batch, and whether noise grows."""
    noise = _noise(tables)
    ends = noise[noise["part"].isin((1, PARTS))].pivot_table(index=[*KEY, "batch"], columns="part", values="value")
    grown = f"the noise scale grows {number((ends[PARTS] / ends[1]).median(), 2)} times during training; " if (
        ends.shape[1] == 2 and len(ends.dropna())
    ) else ""  # fmt: skip
    both = rows(tables, "critical_batches", CELLS)
    both = both[both["noise_over_critical"].notna()]
    if both.empty:
        return grown.removesuffix("; ")
    ratio = with_interval(both.iloc[:1], "noise_over_critical")[0]
    return f"{both.iloc[0]['network']}: {grown}it is {ratio} times the critical mini-batch"


def _noise(tables: Tables) -> pd.DataFrame:
    found = estimate(rows(tables, "noise_scale", CELLS), "noise_scale", "samples")
    found = found[found["value"].map(lambda value: 0 < value < float("inf"))]
    if found.empty:
        raise NoData(f"no {CELLS} whose gradients are distinguishable from their noise")
    series = "B = " + found["batch"].astype(str)
    return found.assign(basis="measured", panel=_panel(found), series=series).sort_values([*KEY, "batch", "part"])


def _critical(tables: Tables) -> pd.DataFrame:
    known = tables.get("critical_batches")
    if known is None or known.empty:
        return pd.DataFrame(columns=["panel", "value", "low", "high"], dtype=float)
    found = estimate(known, "critical_batch", "samples")
    found = found[found["value"].map(lambda value: 0 < value < float("inf"))]
    return found.assign(basis="critical", panel=_panel(found))


def _panel(frame: pd.DataFrame) -> pd.Series[str]:
    return frame["network"] + " · " + frame["storage"] + "\n" + frame["recipe"] + " · " + frame["sync"]

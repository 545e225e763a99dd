"""Steps to a target against the mini-batch, and the three regimes of such curves (Shallue et al. 2019, Fig. 1)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from stallpoint.models.convergence.steps import DIMINISHING, NO_GAIN, PERFECT, TO_TARGET, law
from stallpoint.report.charts import NoData, Tables, axes, marks, shapes, theme
from stallpoint.report.charts.labels import estimate, largest_row, rows, with_interval
from stallpoint.report.charts.shapes import Line
from stallpoint.text import number

CELLS = "convergence cells with a target, at two mini-batches or more"
KEY = [*TO_TARGET, "ranks"]
GRID = 40
"""Points of a fitted line."""
LINES = (replace(shapes.MEASURED, dash=None), Line("fitted", theme.DASHED, hover=False))


def draw(tables: Tables) -> alt.FacetChart:
    """Draw a panel for each training: measured steps, the fit, perfect scaling, and the regimes behind them."""
    critical = _critical(tables)
    measured = estimate(rows(tables, "steps_to_target", CELLS), "steps").merge(critical[KEY])
    measured = measured.assign(
        panel=panel(measured), basis="measured",
        runs=measured["runs_reached"].astype(str) + " of " + measured["runs"].astype(str) + " runs reached it",
    ).sort_values([*KEY, "batch"], kind="stable")  # fmt: skip
    lines: pd.DataFrame = pd.concat([_line(row, measured) for _, row in critical.iterrows()])
    x = axes.counts_x(measured, "batch", "mini-batch B of all workers [samples]")
    y = axes.log10_y(axes.reach(measured), "steps to the target")
    fewest = measured.groupby("panel")["batch"].transform("min")
    ideal = measured[["panel", "batch"]].assign(basis="ideal", start=fewest)
    ideal["value"] = measured["value"].where(measured["batch"] == fewest).groupby(measured["panel"]).transform("max")
    ideal["value"] *= fewest / ideal["batch"]
    colours = alt.Scale(domain=[PERFECT, DIMINISHING, NO_GAIN], range=[theme.GREEN, theme.ORANGE, theme.VERMILION])
    colour = alt.Color("regime:N", scale=colours, legend=alt.Legend(title="doubling B", symbolOpacity=0.4))
    regimes = marks.only("regime").mark_rect(opacity=0.13).encode(x=x, x2="until:Q", color=colour)
    tips = {"batch": "B", "shown": "steps (90 % interval)", "runs": "of them"}
    frame = pd.concat([measured, lines, ideal, _regimes(critical, measured)])
    return shapes.curves(frame, x, y, tips, LINES, colour=alt.value(theme.BLUE), behind=[regimes])


def panel(frame: pd.DataFrame) -> pd.Series[str]:
    """Return two lines for each training to a target."""
    target = [f"{100 * target:.3g} %" for target in frame["target"]]
    workers = [f" · {ranks} workers" if ranks else "" for ranks in frame["ranks"]]
    first = frame["network"] + " · " + frame["storage"] + " · " + target
    return first + "\n" + frame["recipe"] + " · " + frame["sync"] + workers


def finding(tables: Tables) -> str:
    """Return the critical mini-batch of the training with the most mini-batches, and the cost of the largest one."""
    best = largest_row(_critical(tables).assign(least=lambda frame: -frame["largest_reaching"]), "batches")
    critical = with_interval(pd.DataFrame([best]), "critical_batch")[0]
    steps = rows(tables, "steps_to_target", CELLS).merge(pd.DataFrame([best])[KEY])
    reached = steps[steps["samples"].notna()].sort_values("batch")
    first, last = reached.iloc[0], reached.iloc[-1]
    cost = number(last["samples"] / first["samples"], 2)
    return (
        f"{best['network']}, {best['recipe']}: critical mini-batch {critical}; B = {last['batch']} takes {cost} times "
        f"the samples of B = {first['batch']}"
    )


def _critical(tables: Tables) -> pd.DataFrame:
    """Return the trainings with a known law."""
    found = rows(tables, "critical_batches", CELLS)
    found = found[found["critical_batch"].notna()]
    if found.empty:
        raise NoData(f"no {CELLS}")
    return found


def _line(row: pd.Series[Any], measured: pd.DataFrame) -> pd.DataFrame:
    """Return S(B) over the trained mini-batches."""
    own = pd.DataFrame([row])
    here = measured.merge(own[KEY])["batch"]
    batch = np.geomspace(here.min(), here.max(), GRID)
    value = law(own["least_steps"].item(), own["least_samples"].item() / batch, own["bend"].item())
    return pd.DataFrame({"panel": panel(own).item(), "batch": batch, "value": value, "basis": "fitted"})


def _regimes(critical: pd.DataFrame, measured: pd.DataFrame) -> pd.DataFrame:
    """Return begin and end of each regime in each panel, among the trained B; none with too few B."""
    sure = critical[critical["critical_batch_low"].notna()]
    if sure.empty:
        return pd.DataFrame(columns=["panel", "until", "regime"])
    named = panel(sure)
    trained = measured.groupby("panel")["batch"].agg(["min", "max"]).loc[list(named)].set_index(sure.index)
    smallest, largest = trained["min"], trained["max"]
    ends = [
        (PERFECT, smallest, sure["perfect_to"]),
        (DIMINISHING, sure["perfect_to"], sure["no_gain_from"]),
        (NO_GAIN, sure["no_gain_from"], largest),
    ]
    found = pd.concat([
        pd.DataFrame({
            "panel": named, "basis": "regime", "regime": name,
            "batch": begin.clip(smallest, largest), "until": end.clip(smallest, largest),
        })
        for name, begin, end in ends
    ])  # fmt: skip
    return found[found["until"] > found["batch"]]

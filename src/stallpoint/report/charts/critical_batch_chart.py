"""Steps to a target against the mini-batch, with regimes (Shallue et al. 2019, Fig. 1), and the noise scale."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from stallpoint.models.convergence.noise_scale import TRAINING_PARTS
from stallpoint.models.convergence.steps import TO_TARGET, TRAINING_COLUMNS, Regime, law
from stallpoint.report.charts import Drawing, NoData, Tables, axes, marks, shapes, theme
from stallpoint.report.charts.labels import estimate, largest_row, rows, with_interval
from stallpoint.report.charts.shapes import Line
from stallpoint.text import number

CELLS = "convergence cells with a target, at two mini-batches or more"
KEY = [*TO_TARGET, "ranks"]
LINE_POINTS = 40
"""Number of points on a fitted line."""
LINES = (replace(shapes.MEASURED, dash=None), Line("fitted", theme.DASHED, hover=False))

REGIMES = [str(Regime.PERFECT), str(Regime.DIMINISHING), str(Regime.NO_GAIN)]


def _draw_steps(tables: Tables) -> alt.FacetChart:
    """Draw a panel for each training to a target: measured steps, their fit, perfect scaling, and shaded regimes."""
    critical = _critical_rows(tables)
    measured = estimate(rows(tables, "steps_to_target", CELLS), "steps").merge(critical[KEY])
    measured = measured.assign(
        panel=_panel(measured), basis="measured",
        runs=measured["runs_reached"].astype(str) + " of " + measured["runs"].astype(str) + " runs reached it",
    ).sort_values([*KEY, "batch"], kind="stable")  # fmt: skip
    lines: pd.DataFrame = pd.concat([_line(row, measured) for _, row in critical.iterrows()])
    x = axes.counts_x(measured, "batch", "mini-batch B of all workers [samples]")
    y = axes.log10_y(axes.span(measured), "steps to the target")
    reference = measured.groupby("panel")["batch"].transform("min")
    ideal = measured[["panel", "batch"]].assign(basis="ideal", start=reference)
    ideal["value"] = measured["value"].where(measured["batch"] == reference).groupby(measured["panel"]).transform("max")
    ideal["value"] *= reference / ideal["batch"]
    colours = alt.Scale(domain=REGIMES, range=[theme.GREEN, theme.ORANGE, theme.VERMILION])
    colour = alt.Color("regime:N", scale=colours, legend=alt.Legend(title="doubling B", symbolOpacity=0.4))
    regimes = marks.rows_of("regime").mark_rect(opacity=0.13).encode(x=x, x2="until:Q", color=colour)
    tips = {"batch": "B", "shown": "steps (90 % interval)", "runs": "of them"}
    frame = pd.concat([measured, lines, ideal, _regimes(critical, measured)])
    return shapes.curves(frame, x, y, tips, LINES, colour=alt.value(theme.BLUE), behind=[regimes])


def _panel(frame: pd.DataFrame) -> pd.Series[str]:
    """Return the name of the panel (two lines) of each training to a target."""
    target = [f"{100 * target:.3g} %" for target in frame["target"]]
    workers = [f" · {ranks} workers" if ranks else "" for ranks in frame["ranks"]]
    heading = frame["network"] + " · " + frame["storage"] + " · " + target
    return heading + "\n" + frame["recipe"] + " · " + frame["sync"] + workers


def _cost_of_the_largest(tables: Tables) -> str:
    """Return the finding on the training with the most mini-batches: critical B, and the samples for the largest B."""
    best = largest_row(_critical_rows(tables).assign(least=lambda frame: -frame["largest_reaching"]), "batches")
    critical = with_interval(pd.DataFrame([best]), "critical_batch")[0]
    steps = rows(tables, "steps_to_target", CELLS).merge(pd.DataFrame([best])[KEY])
    reaching = steps[steps["samples"].notna()].sort_values("batch")
    first, last = reaching.iloc[0], reaching.iloc[-1]
    cost = number(last["samples"] / first["samples"], 2)
    return (
        f"{best['network']}, {best['recipe']}: critical mini-batch {critical}; B = {last['batch']} takes {cost} times "
        f"the samples of B = {first['batch']}"
    )


def _critical_rows(tables: Tables) -> pd.DataFrame:
    """Return the trainings whose critical mini-batch is known; raise `NoData` if there are none."""
    found = rows(tables, "critical_batches", CELLS)
    found = found[found["critical_batch"].notna()]
    if found.empty:
        raise NoData(f"no {CELLS}")
    return found


def _line(row: pd.Series[Any], measured: pd.DataFrame) -> pd.DataFrame:
    """Return the fitted steps S(B) over the range of mini-batches B that were trained."""
    training = pd.DataFrame([row])
    sizes = measured.merge(training[KEY])["batch"]
    batch = np.geomspace(sizes.min(), sizes.max(), LINE_POINTS)
    value = law(training["least_steps"].item(), training["least_samples"].item() / batch, training["bend"].item())
    return pd.DataFrame({"panel": _panel(training).item(), "batch": batch, "value": value, "basis": "fitted"})


def _regimes(critical: pd.DataFrame, measured: pd.DataFrame) -> pd.DataFrame:
    """Return the begin and end of each regime in each panel, within the trained B, if critical B has an interval."""
    known = critical[critical["critical_batch_low"].notna()]
    if known.empty:
        return pd.DataFrame(columns=["panel", "until", "regime"])
    panels = _panel(known)
    batches = measured.groupby("panel")["batch"].agg(["min", "max"]).loc[list(panels)].set_index(known.index)
    smallest, largest = batches["min"], batches["max"]
    ends = [
        (Regime.PERFECT, smallest, known["perfect_to"]),
        (Regime.DIMINISHING, known["perfect_to"], known["no_gain_from"]),
        (Regime.NO_GAIN, known["no_gain_from"], largest),
    ]
    found = pd.concat([
        pd.DataFrame({
            "panel": panels, "basis": "regime", "regime": name,
            "batch": begin.clip(smallest, largest), "until": end.clip(smallest, largest),
        })
        for name, begin, end in ends
    ])  # fmt: skip
    return found[found["until"] > found["batch"]]


# --- noise scale of the gradients -----------------------------------------------------------------

NOISE_CELLS = "convergence cells with noise_steps on several workers"
RUN_KEY = list(TRAINING_COLUMNS)


def _draw_noise(tables: Tables) -> alt.FacetChart:
    """Draw the noise scale by quarters of the training, a line for each B, and the critical B with its interval."""
    noise = _noise(tables)
    critical = _critical_batches(tables)
    critical = critical[critical["panel"].isin(noise["panel"])]
    y = axes.log10_y([*axes.span(noise), *critical["value"]], "mini-batch [samples]")
    x = alt.X("part:O", title="quarter of the training", axis=alt.Axis(labelAngle=0))
    names = list(noise["series"].unique())
    colour = alt.Color("series:N", scale=theme.colours("series", names), legend=alt.Legend(title="noise scale at"))
    steps, tooltip = marks.rows_of("critical"), marks.tips(shown="critical mini-batch (90 % interval)")
    behind = [
        steps.mark_rect(style="near").encode(y=marks.axis(y, "low"), y2="high:Q"),
        steps.mark_rule(strokeDash=theme.DASHED, style="zero").encode(y=y, tooltip=tooltip),
    ]
    tips = {"series": "at", "part": "quarter", "shown": "noise scale (90 % interval)"}
    frame = pd.concat([noise, axes.clip_intervals(critical, y)])
    return shapes.curves(frame, x, y, tips, [shapes.MEASURED], colour=colour, behind=behind)


def _noise_finding(tables: Tables) -> str:
    """Return the finding: the noise scale relative to the critical mini-batch, and how far the noise scale grows."""
    noise = _noise(tables)
    ends = noise[noise["part"].isin((1, TRAINING_PARTS))].pivot_table("value", [*RUN_KEY, "batch"], "part")
    growth = ""
    if ends.shape[1] == 2 and len(ends.dropna()):
        growth = f"the noise scale grows {number((ends[TRAINING_PARTS] / ends[1]).median(), 2)} times during training; "
    ratios = rows(tables, "critical_batches", NOISE_CELLS)
    ratios = ratios[ratios["noise_over_critical"].notna()]
    if ratios.empty:
        return growth.removesuffix("; ")
    ratio = with_interval(ratios.iloc[:1], "noise_over_critical")[0]
    return f"{ratios.iloc[0]['network']}: {growth}it is {ratio} times the critical mini-batch"


def _noise(tables: Tables) -> pd.DataFrame:
    found = estimate(rows(tables, "noise_scale", NOISE_CELLS), "noise_scale", "samples")
    found = found[found["value"].map(lambda value: 0 < value < float("inf"))]
    if found.empty:
        raise NoData(f"no {NOISE_CELLS} whose gradients are distinguishable from their noise")
    series = "B = " + found["batch"].astype(str)
    return found.assign(basis="measured", panel=_trained(found), series=series).sort_values([*RUN_KEY, "batch", "part"])


def _critical_batches(tables: Tables) -> pd.DataFrame:
    known = tables.get("critical_batches")
    if known is None or known.empty:
        return pd.DataFrame(columns=["panel", "value", "low", "high"], dtype=float)
    found = estimate(known, "critical_batch", "samples")
    found = found[found["value"].map(lambda value: 0 < value < float("inf"))]
    return found.assign(basis="critical", panel=_trained(found))


def _trained(frame: pd.DataFrame) -> pd.Series[str]:
    return frame["network"] + " · " + frame["storage"] + "\n" + frame["recipe"] + " · " + frame["sync"]


steps_to_target = Drawing(_draw_steps, _cost_of_the_largest)
noise_scale = Drawing(_draw_noise, _noise_finding)

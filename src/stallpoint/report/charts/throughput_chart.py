"""The fastest curve of each network: throughput, efficiency and cost, time against cost, use of devices and link."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.report.charts import Drawing, NoData, Tables, axes, shapes
from stallpoint.report.charts.labels import (
    estimate,
    label,
    largest_row,
    placement_in_words,
    rows,
    smallest_row,
    sort_by_lead,
    with_interval,
    with_machines,
)
from stallpoint.strategies.presets import NONE
from stallpoint.text import number

CELLS = "train cells with scaling strong or weak"
MEASURES = ("samples per second", "efficiency [%]", "node-hours per million samples")
PER_MILLION = 1e6 / 3600
LABELS = "datum.value < 1e4 ? format(datum.value, '~g') : format(datum.value, '~s')"
"""Only thousands are abbreviated, as 200m for thousandths reads like millions."""


def _draw_throughput(tables: Tables) -> alt.FacetChart:
    """Draw a panel for each measure, and for each hardware if there are several, with a line for each network."""
    frame = _measures(tables)
    tips = {"network": "network", "series": "curve", "ranks": axes.unit(frame), "basis": "basis",
            "shown": "(90 % interval)"}  # fmt: skip
    return shapes.curves(frame, axes.ranks_x(frame), _y_axis(), tips, colour="network", own_axes=["y"])


def _y_axis() -> alt.Y:
    """Return an axis for panels with different quantities; each panel has its own logarithmic scale."""
    axis = alt.Axis(labelExpr=LABELS, tickCount=5)
    return alt.Y("value:Q", title=None, scale=alt.Scale(type="log", nice=False), axis=axis)


def _fastest_curves(tables: Tables, table: str) -> pd.DataFrame:
    """Return the rows in `table` of the fastest curve of each network and hardware; ``series`` names the curve."""
    frame = rows(tables, table, CELLS)
    frame = frame[(frame["scaling"] != "compute") & (frame["sync"] != NONE)]
    if frame.empty:
        raise NoData(f"no {CELLS}")
    known = {name: of for name, of in tables.items() if name != "stalling"}  # its verdicts would add slower curves
    leads = sort_by_lead(with_machines(frame, tables), known).query("lead").drop(columns="lead")
    return leads.assign(series=label(leads, ["scaling", "sync", "batch"]))


def _measures(tables: Tables) -> pd.DataFrame:
    """Return the three `MEASURES` of the fastest curve of each network and hardware, measured and predicted."""
    leads = _fastest_curves(tables, "predictions")
    found = [
        one.assign(basis=basis)
        for basis in ("measured", "predicted")
        for one in _measures_of(leads, basis)
    ]  # fmt: skip
    frame = pd.concat(found)
    many = leads["hardware"].nunique() > 1
    frame["panel"] = frame["measure"] + (("\n" + frame["hardware"]) if many else "")
    order = frame["measure"].map(MEASURES.index)
    return frame.assign(order=order).sort_values(["order", "hardware", "network", "ranks"], kind="stable")


def _measures_of(leads: pd.DataFrame, basis: str) -> list[pd.DataFrame]:
    """Return a frame for each of `MEASURES`. Interval ends are swapped if a measure falls as the time rises."""
    time = {end: leads[f"{basis}_iteration{end}"] for end in ("", "_low", "_high")}
    opposite_end = {"": "", "_low": "_high", "_high": "_low"}
    worker_ratio = leads["ranks"] / leads.groupby(["network", "hardware"])["ranks"].transform("min")
    quantities = (
        {end: leads["global_batch"] / time[opposite_end[end]] for end in time},
        {end: 100 * leads[f"{basis}_speedup{end}"] / worker_ratio for end in time},
        {end: PER_MILLION * leads["nodes"] * time[end] / leads["global_batch"] for end in time},
    )
    return [
        estimate(leads.assign(measure=name, **{f"quantity{end}": found for end, found in of.items()}), "quantity")
        for name, of in zip(MEASURES, quantities, strict=True)
    ]


def _cost_of_a_sample(tables: Tables) -> str:
    """Return the finding: the largest growth of a sample's cost from the fewest to the most measured workers."""
    frame = _measures(tables).query("basis == 'measured'")
    cost = frame[frame["measure"] == MEASURES[2]].sort_values("ranks")
    curves = cost.groupby(["network", "hardware"])
    ends = {"first": curves["value"].first(), "last": curves["value"].last()}
    ends |= {name: curves[name].last() for name in ("ranks", "workers_per_node")}
    known = pd.DataFrame(ends).reset_index().query("ranks > 1")
    if known.empty:
        return ""
    worst = largest_row(known.assign(ratio=known["last"] / known["first"]), "ratio")
    ratio, placement = number(worst["ratio"], 2), placement_in_words(worst)
    if ratio == "1":
        return f"{worst['network']}: a sample costs as many node-hours at {placement} as on the fewest"
    return f"{worst['network']}: a sample costs {ratio} times the node-hours at {placement}"


def _draw_costs(tables: Tables) -> alt.FacetChart:
    """Draw an epoch's time over its price or node-hours: a line for each network, a panel for each hardware."""
    frame, cost = _costs(tables)
    scale, axis = axes.log10(frame[cost])
    x = alt.X(f"{cost}:Q", title=f"{COSTS[cost]} of an epoch", scale=scale, axis=axis)
    tips = {"network": "network", "series": "curve", "ranks": axes.unit(frame), "basis": "basis",
            "shown": "time (90 % interval)", "paid": COSTS[cost]}  # fmt: skip
    return shapes.curves(frame, x, axes.log10_y(axes.span(frame), "time of an epoch [h]"), tips, colour="network")


COSTS = {"price": "price", "node_hours": "node-hours"}


def _costs(tables: Tables) -> tuple[pd.DataFrame, str]:
    """Return the costs of an epoch, and the column of its cost: the price if known in all rows, else node-hours."""
    leads = _fastest_curves(tables, "costs").query("goal == 'epoch'")
    cost = "node_hours" if leads["price"].isna().any() else "price"
    frame = estimate(leads.assign(paid=with_interval(leads, cost)), "time", "h", 1 / 3600)
    frame = frame.assign(panel=frame["hardware"])
    return frame.sort_values(["hardware", "network", "basis", "ranks"], kind="stable"), cost


def _price_of_speed(tables: Tables) -> str:
    """Return the finding: the shortest epoch on any measured number of workers, compared with the cheapest epoch."""
    frame, cost = _costs(tables)
    curve = frame[frame["basis"] == "measured"]
    curve = curve[(curve[["network", "hardware"]] == curve.iloc[:1][["network", "hardware"]].to_numpy()).all(axis=1)]
    if len(curve) < 2:
        return ""
    fast, cheap = smallest_row(curve, "value"), smallest_row(curve, cost)
    if fast["ranks"] == cheap["ranks"]:
        return f"{fast['network']}: an epoch is fastest and cheapest on {placement_in_words(fast)}"
    ratios = number(fast[cost] / cheap[cost], 2), number(cheap["value"] / fast["value"], 2)
    return (
        f"{fast['network']}: an epoch on {placement_in_words(fast)} costs {ratios[0]} times as much as on "
        f"{placement_in_words(cheap)}, and is {ratios[1]} times as fast"
    )


FLOPS, LINK = "model FLOP/s of a worker", "bandwidth of the gradients"
USES = {FLOPS: ("flops", 1e-9, "GFLOP/s"), LINK: ("link", 1e-6, "MB/s")}
"""Measure -> column, scale, and unit on hardware without a rating."""


def _draw_utilisation(tables: Tables) -> alt.FacetChart:
    """Draw a panel for each measure and hardware, a line for each network."""
    frame = _all_measures(tables).assign(basis="measured")
    tips = {"network": "network", "series": "curve", "ranks": axes.unit(frame), "shown": "(90 % interval)"}
    x, lines = axes.ranks_x(frame), [shapes.MEASURED]
    return shapes.curves(frame, x, _y_axis(), tips, lines, colour="network", own_axes=["y"])


def _all_measures(tables: Tables) -> pd.DataFrame:
    """Return both `USES` of the fastest curve of each network and hardware, in % of the hardware's rating if known."""
    leads = _fastest_curves(tables, "utilisation")
    found = [_measure_rows(leads, measure).assign(measure=measure) for measure in USES]
    frame = pd.concat([one for one in found if len(one)] or found)
    if frame.empty:
        raise NoData(f"no network of known size among the {CELLS}")
    many = leads["hardware"].nunique() > 1
    frame["panel"] = frame["measure"] + " [" + frame["unit"] + "]" + (("\n" + frame["hardware"]) if many else "")
    order = frame["measure"].map(list(USES).index)
    return frame.assign(order=order).sort_values(["order", "hardware", "network", "ranks"], kind="stable")


def _measure_rows(leads: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Return the rows of one measure. Their unit depends on whether the hardware has a rating."""
    column, scale, unit = USES[measure]
    rated = leads[f"{column}_share"].notna()
    shares = estimate(leads[rated], f"{column}_share", " %", 100).assign(unit="% of rated")
    return pd.concat([shares, estimate(leads[~rated], column, f" {unit}", scale).assign(unit=unit)])


def _least_used(tables: Tables) -> str:
    """Return the finding: the lowest share of the rated FLOP/s among curves, taking each at its most workers."""
    frame = _all_measures(tables).query("measure == @FLOPS and unit == '% of rated'")
    if frame.empty:
        return ""
    largest_rows = frame[frame["ranks"] == frame.groupby(["network", "hardware"])["ranks"].transform("max")]
    least = largest_row(largest_rows.assign(unused=-largest_rows["value"]), "unused")
    return f"{least['network']}: {number(least['value'])} % of the rated FLOP/s on {placement_in_words(least)}"


throughput = Drawing(_draw_throughput, _cost_of_a_sample)
costs = Drawing(_draw_costs, _price_of_speed)
utilisation = Drawing(_draw_utilisation, _least_used)

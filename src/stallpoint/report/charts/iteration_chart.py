"""Parts of an iteration's time, by workers: critical path, lost time by cause, compute against communication."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.models.answers.causes import LossVerdict
from stallpoint.report.charts import Drawing, NoData, Tables, axes, marks, shapes
from stallpoint.report.charts.labels import (
    AXES,
    arrange,
    largest_row,
    placement_in_words,
    rows,
    smallest_row,
    sort_by_lead,
    with_interval,
)
from stallpoint.strategies.presets import NONE
from stallpoint.text import number

CELLS = "train cells with scaling strong or weak"
MIN_WRITTEN_SHARE = 0.08
"""Minimum height of a part, as a share of the highest bar, at which its percentage is written."""


def _draw_path(tables: Tables) -> alt.FacetChart:
    """Draw stacked times of an iteration's parts, a bar for each number of workers, without parts that are always 0."""
    frame = rows(tables, "critical_path", CELLS)
    frame = frame[(frame["sync"] != NONE) & (frame.groupby("part")["share"].transform("max") > 0)]
    frame = sort_by_lead(arrange(frame, own_panel=True), tables)
    unit = axes.unit(frame)
    colour = marks.colour(frame, "part")
    frame = _stack_parts(frame, list(colour["scale"]["domain"]))
    x = marks.bars_x("ranks", unit)
    y = alt.Y("bottom:Q", title="time of an iteration [s]", axis=alt.Axis(format="~g"))
    intervals = alt.Chart().mark_rule(style="interval", xOffset=alt.expr("datum.shift"))
    labels = [
        alt.Chart().mark_text(style=style).encode(x=x, y=marks.axis(y, "middle"), text="written:N")
        for style in ("halo", "written")
    ]
    return shapes.bars(
        frame, x, y, colour,
        {"part": "part", "ranks": unit, "basis": "basis", "shown": "time (90 % interval)", "percent": "share [%]"},
        end="top", width=marks.bar_width(frame, "ranks"),
        overlay=[intervals.encode(x=x, y=marks.axis(y, "low_end"), y2="high_end:Q"), *labels],
    )  # fmt: skip


def _stack_parts(frame: pd.DataFrame, parts: list[str]) -> pd.DataFrame:
    """Return `frame` with the ends of each part's bar, stacked in the order of `parts`, and the place of its interval.

    The interval of a part is at the upper end of its bar. It is shifted sideways, apart from its neighbours' intervals.
    """
    order = frame["part"].map(parts.index)
    frame = frame.assign(order=order, first=range(len(frame)))
    frame = frame.sort_values(["panel", "ranks", "order"], kind="stable")
    top = frame.groupby(["panel", "ranks"])["seconds"].cumsum()
    highest_stack = top.groupby(frame["panel"]).transform("max")
    is_large = frame["seconds"] >= MIN_WRITTEN_SHARE * highest_stack
    is_known = frame["seconds_low"].notna() & (frame["seconds"] >= MIN_WRITTEN_SHARE / 4 * highest_stack)
    percent = frame["share"] * 100
    stacked_frame = frame.assign(
        percent=percent,
        shown=with_interval(frame, "seconds", "s"),
        written=[f"{share:.0f} %" if shown else "" for share, shown in zip(percent, is_large, strict=True)],
        bottom=top - frame["seconds"],
        top=top,
        middle=top - frame["seconds"] / 2,
        low_end=(top - frame["seconds"] + frame["seconds_low"]).where(is_known),
        high_end=(top - frame["seconds"] + frame["seconds_high"]).where(is_known),
        shift=[4 * (i % 3 - 1) for i in frame["order"]],
    )
    return stacked_frame.sort_values("first", kind="stable")


def _longest_wait(tables: Tables) -> str:
    """Return the finding: the largest cause of time other than computing, on the most workers of fastest curves."""
    frame = rows(tables, "critical_path", CELLS)
    frame = sort_by_lead(frame[frame["sync"] != NONE], tables)
    frame = frame[frame["lead"] & (frame["ranks"] == frame.groupby(list(AXES))["ranks"].transform("max"))]
    waits = frame[frame["cause"].isin(["communication", "training data", "straggling", "pipeline bubble"])]
    if waits.empty:
        return ""
    shares = (
        waits.groupby(["network", "hardware", "ranks", "workers_per_node", "basis", "cause"], sort=False)["share"]
        .sum()
        .reset_index()
    )
    worst_row = largest_row(shares, "share")
    many = frame["hardware"].nunique() > 1
    subject = f"{worst_row['network']} on {worst_row['hardware']}" if many else worst_row["network"]
    predicted = " (predicted)" if worst_row["basis"] == "predicted" else ""
    share = f"{worst_row['cause']} takes {100 * worst_row['share']:.0f} % of each iteration"
    return f"{subject}: {share} at {placement_in_words(worst_row)}{predicted}"


# --- time lost by cause ---------------------------------------------------------------------------

CELLS_WITH_COMMUNICATION = "train cells with scaling strong or weak on two workers or more"


def _draw_causes(tables: Tables) -> alt.FacetChart:
    """Draw a bar with interval for each cause and number of workers. Gains are negative losses, below zero."""
    frame = sort_by_lead(arrange(_causes(tables), own_panel=True), tables)
    unit = axes.unit(frame)
    frame = frame.assign(
        value=100 * frame["share"], low=100 * frame["share_low"], high=100 * frame["share_high"],
        shown=with_interval(frame, "lost", "s"),
    )  # fmt: skip
    colour = marks.colour(frame, "cause")
    groups = ("cause", *colour["scale"]["domain"])
    x = marks.bars_x("ranks", unit)
    y = alt.Y("value:Q", title="time lost [% of iteration]", scale=alt.Scale(zero=True))
    tips = {"cause": "cause", "ranks": unit, "basis": "basis", "value": "lost [%]", "shown": "lost (90 % interval)",
            "verdict": "verdict"}  # fmt: skip
    return shapes.bars(
        frame, x, y, colour, tips, grouped=groups, hatch="narrow-hatch", intervals=True, overlay=[marks.line_at(0, "y")]
    )


def _causes(tables: Tables) -> pd.DataFrame:
    """Return the table ``causes`` with further columns: the ends of intervals as shares of the iteration."""
    frame = rows(tables, "causes", CELLS_WITH_COMMUNICATION)
    frame = frame[frame["share"].notna() & (frame["sync"] != NONE)]
    if frame.empty:
        raise NoData(f"no {CELLS_WITH_COMMUNICATION}")
    # Every cause is a share of the iteration time.
    seconds = (frame["lost"] / frame["share"]).where(frame["share"] != 0)
    iteration = seconds.groupby([frame[axis] for axis in (*AXES, "ranks")]).transform("median")
    return frame.assign(
        share_low=frame["lost_low"] / iteration,
        share_high=frame["lost_high"] / iteration,
    )


def _dominant_cause(tables: Tables) -> str:
    """Return the finding: the largest dominant cause that was measured on fastest curves, or that none dominates."""
    frame = sort_by_lead(_causes(tables), tables).query("lead and basis == 'measured'")
    frame = frame[frame["ranks"] == frame.groupby(list(AXES))["ranks"].transform("max")]
    dominant_rows = frame[frame["verdict"] == LossVerdict.DOMINANT]
    if frame.empty:
        return ""
    if dominant_rows.empty:
        counts = "/".join(str(n) for n in sorted(frame["ranks"].unique()))
        return f"No single cause dominates at {counts} {axes.unit(frame)}: their intervals overlap"
    worst_row = largest_row(dominant_rows, "share")
    costs = f"{worst_row['cause']} costs most, {100 * worst_row['share']:.0f} % of each iteration"
    return f"{worst_row['network']}: {costs} at {placement_in_words(worst_row)}"


# --- compute against communication (Keuper & Pfreundt, Fig. 3) ------------------------------------

COMPUTE = ("forward", "backward", "update")
HIDDEN, EXPOSED = "hidden communication", "exposed communication"
KINDS = ("compute", "communication")
CROSSING_MARK = "▲"
"""Mark of the first number of workers at which communication takes longer than compute."""


def _draw_communication(tables: Tables) -> alt.FacetChart:
    """Draw bars of compute beside stacked bars of hidden and exposed communication, for each number of workers."""
    frame = sort_by_lead(arrange(_times(tables), own_panel=True), tables)
    unit = axes.unit(frame)
    x = marks.bars_x("ranks", unit)
    y = alt.Y("value:Q", title="time in one iteration [s]", axis=alt.Axis(format="~g"))
    tips = {"time": "time", "ranks": unit, "basis": "basis", "shown": "time"}
    crossing = alt.Chart().mark_text(style="row", dy=-9).encode(x=x, y=marks.axis(y, "top"), text="crosses:N")
    return shapes.bars(frame, x, y, "time", tips, grouped=("kind", *KINDS), order="order", overlay=[crossing])


def _times(tables: Tables) -> pd.DataFrame:
    """Return a row for each kind of time at each point. ``crosses`` marks where communication exceeds compute first."""
    frame = rows(tables, "predictions", CELLS_WITH_COMMUNICATION)
    frame = frame[(frame["scaling"] != "compute") & (frame["sync"] != NONE)]
    is_measured = frame["measured_iteration"].notna()
    basis = is_measured.map({True: "measured", False: "predicted"})
    phases = {name: frame[f"measured_{name}"].where(is_measured, frame[f"predicted_{name}"])
          for name in (*COMPUTE, "communication", "exposed_communication")}  # fmt: skip
    compute = sum((phases[name] for name in COMPUTE), pd.Series(0.0, index=frame.index))
    exposed = phases["exposed_communication"].clip(upper=phases["communication"])
    if not (phases["communication"] > 0).any():
        raise NoData(f"no {CELLS_WITH_COMMUNICATION}")
    is_above = phases["communication"] > compute
    curve = [frame[axis] for axis in AXES]
    crossing_ranks = frame["ranks"].where(is_above).groupby(curve).transform("min")
    crossing_marks = (frame["ranks"] == crossing_ranks).map({True: CROSSING_MARK, False: ""})
    zeros, no_mark = pd.Series(0.0, index=frame.index), pd.Series("", index=frame.index)
    stacks = (
        ("compute", KINDS[0], zeros, compute, no_mark),
        (EXPOSED, KINDS[1], zeros, exposed, no_mark),
        (HIDDEN, KINDS[1], exposed, phases["communication"], crossing_marks),
    )
    parts = [
        frame.assign(time=name, kind=kind, basis=basis, order=i, top=high, value=high - low, crosses=mark)
        for i, (name, kind, low, high, mark) in enumerate(stacks)
    ]
    times = pd.concat(parts)
    times = times[times["value"].notna() & ((times["value"] > 0) | (times["crosses"] != ""))]
    return times.assign(shown=[f"{number(seconds)} s" for seconds in times["value"]])


def _crossing(tables: Tables) -> str:
    """Return the finding: where communication takes longer than compute on fastest curves, or that it never does."""
    frame = sort_by_lead(_times(tables), tables).query("lead")
    crossing = frame[frame["crosses"] != ""]
    if crossing.empty:
        return f"Communication stays below compute up to {placement_in_words(largest_row(frame, 'ranks'))}"
    first = smallest_row(crossing, "ranks")
    predicted = " (predicted)" if first["basis"] == "predicted" else ""
    return f"{first['network']}: communication takes longer than compute from {placement_in_words(first)} on{predicted}"


critical_path = Drawing(_draw_path, _longest_wait)
causes = Drawing(_draw_causes, _dominant_cause)
communication = Drawing(_draw_communication, _crossing)

"""Predictions against measurements: by the DAG model, from fewer workers, and by scaling laws (Shi et al., Fig. 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import altair as alt
import pandas as pd

from stallpoint.questions.study_words import count
from stallpoint.report.charts import Drawing, NoData, Tables, axes, shapes
from stallpoint.report.charts.labels import AXES, label, largest_row, placement_in_words, rows, with_interval

LARGE_ERROR = 0.25
"""Relative error above which a prediction is named in the chart."""
ERROR_TIPS = {"shown": "predicted (90 % interval)", "off": "prediction off by"}


def _prediction(tables: Tables) -> alt.FacetChart:
    """Draw a point for each combination that was both predicted and measured, a panel for each hardware."""
    frame = rows(tables, "predictions", "train cells")
    unit = axes.unit(frame)
    names = {"measured": "measured", "held_out": "predicted"}
    new_names = {f"{name}_iteration{end}": f"{to}{end}" for name, to in names.items() for end in ("", "_low", "_high")}
    frame = frame.drop(columns=list(new_names.values()), errors="ignore").rename(columns=new_names)
    frame = frame[frame["predicted"].notna() & frame["measured"].notna()]
    if frame.empty:
        raise NoData("no train cells whose layers, all-reduce and storage were all measured")
    frame = _errors_of_predictions(frame).assign(panel=frame["hardware"])
    for name in ("predicted", "measured"):
        for end in ("low", "high"):
            frame[f"{name}_{end}"] = frame[f"{name}_{end}"].fillna(frame[name])
    tips = {"network": "network", "series": "series", "ranks": unit, "found": "measured (90 % interval)", **ERROR_TIPS}
    return shapes.agreement(frame, " iteration", "s", tips, colour="network")


def _errors_of_predictions(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with the texts of their points: series, times with intervals, error, and a name if far off."""
    return frame.assign(
        series=label(frame, [axis for axis in AXES if axis not in ("network", "hardware")]),
        shown=with_interval(frame, "predicted", "s"),
        found=with_interval(frame, "measured", "s"),
        off=_errors_in_words(frame),
        named=[
            f"{network}, n = {ranks}" if abs(error) > LARGE_ERROR else ""
            for network, ranks, error in zip(frame["network"], frame["ranks"], frame["error"], strict=True)
        ],
    )


def _errors_in_words(frame: pd.DataFrame) -> list[str]:
    return [f"{error:+.1%}" for error in frame["error"]]


def _median_error(tables: Tables) -> str:
    """Return the finding on predictions: their median error, their number, and the worst one."""
    errors = rows(tables, "predictions", "train cells").dropna(subset="error")
    if errors.empty:
        return ""
    worst_row = largest_row(errors.assign(off=errors["error"].abs()), "off")
    return (
        f"Predictions are {100 * errors['error'].abs().median():.0f} % off (median of {count(len(errors), 'point')}), "
        f"most for {worst_row['network']} "
        f"({worst_row['sync']}) at {placement_in_words(worst_row)}: {100 * worst_row['error']:+.0f} %"
    )


def _validation(tables: Tables) -> alt.FacetChart:
    """Draw a point for each held-out combination. A panel has one hardware and one number of workers."""
    frame = _errors_of_predictions(rows(tables, "validation", "train cells on more workers than the fewest two counts"))
    panel_axes = ["hardware", "ranks", "workers_per_node"]
    frame["panel"] = _coverage(frame, panel_axes, lambda one: f"{one['hardware']}, {placement_in_words(one)}")
    tips = {"network": "network", "series": "series", "ranks": axes.unit(frame), "calibration": "training known at",
            "found": "measured", **ERROR_TIPS}  # fmt: skip
    return shapes.agreement(frame, " iteration", "s", tips, colour="network")


def _extrapolation(tables: Tables) -> alt.FacetChart:
    """Draw a point for each held-out number of workers, a panel for each table of rates."""
    cells = "train cells at four or more numbers of workers, nor external table with so many worker counts"
    frame = rows(tables, "law_validation", cells)
    frame = frame[frame["predicted"].notna()]
    if frame.empty:
        raise NoData(f"no {cells}")
    frame = frame.rename(columns={"lower": "predicted_low", "upper": "predicted_high"})
    panel = _coverage(frame, ["table"], lambda one: str(one["table"]))
    frame = frame.assign(panel=panel, shown=with_interval(frame, "predicted", "/s"), off=_errors_in_words(frame))
    tips = {"series": "series", "workers": "workers", "fitted_up_to": "fitted up to", "measured": "measured /s",
            **ERROR_TIPS, "law": "law"}  # fmt: skip
    return shapes.agreement(frame, "", "samples/s", tips)


def _coverage(frame: pd.DataFrame, panel_axes: list[str], panel_name: Callable[[Any], str]) -> pd.Series[str]:
    """Return each row's panel: its name, how many intervals contain the measurement, and the median error."""
    panel = pd.Series("", index=frame.index)
    for _, part in frame.groupby(panel_axes):
        covered, median = int(part["covered"].sum()), 100 * part["error"].abs().median()
        words = f"{covered} of {len(part)} intervals hold it, median error {median:.1f} %"
        panel[part.index] = f"{panel_name(part.iloc[0])}\n{words}"
    return panel


prediction = Drawing(_prediction, _median_error)
validation = Drawing(_validation)
extrapolation = Drawing(_extrapolation)

"""Accuracy at large mini-batches, during training and at its end (Keuper & Pfreundt, Fig. 10 and Table IV)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import altair as alt
import pandas as pd

from stallpoint.base.distributions import student_quantile
from stallpoint.base.statistics import INTERVAL
from stallpoint.models.convergence.early_stopping import compared
from stallpoint.report.charts import convergence_chart, marks, theme
from stallpoint.report.typeset import Typeset
from stallpoint.study.kinds.convergence_kind import DIVERGED
from stallpoint_papers.exhibits import Made, Material, Missing

FILE = "keuper-2016-exhibits"
CELLS = "convergence cells at two mini-batches or more"
OF_PAPER = "alexnet"
MINIMUM = {"accuracy_gap": 100, "sharpness": 1}
"""Columns that only runs with `sharpness_samples` have, and their factors to per cent."""
ENDS = ("", "_low", "_high")
GAP = "Accuracy gap (training less validation) and sharpness at the end, as means: Keskar et al. (2017), metric 2.1."
CURVE = ["network", "hardware", "storage", "sync", "recipe", "nodes", "ranks"]


def figure(material: Material) -> Made:
    """Return Fig. 10: a line for each run, a panel for each network, hardware and recipe; the paper's final values."""
    frame, missing, shown = _chosen(material, "convergence", "validation_accuracy")
    frame = frame.assign(
        value=100 * frame["validation_accuracy"],
        series="B = " + frame["batch"].astype(str),
        panel=frame["network"] + " · " + frame["hardware"] + "\n" + frame["recipe"],
        run=frame["cell"],
    ).sort_values([*CURVE, "batch", "seed", "step"], kind="stable")
    theirs = _published(material)
    y = alt.Y("value:Q", title="validation accuracy [%]")
    tips = {"series": "mini-batch", "step": "iterations", "value": "accuracy [%]"}
    others = [] if missing else list(theirs["series"])
    ends = alt.Chart(theirs).mark_rule(strokeDash=theme.DOTTED).encode(y=y, tooltip=marks.tips(says="published"))
    layers = [] if missing else [ends]
    chart = convergence_chart.runs(frame, "step", "iterations", y, tips, names=others, overlay=layers)
    return Made(chart, missing, shown)


def table(material: Material) -> Made:
    """Return Table IV: a row for each mini-batch, the paper's first; ours with intervals over seeds."""
    frame, missing, shown = _chosen(material, "convergence_runs", "best_accuracy")
    evaluations = material.tables["convergence"]
    steps = evaluations.groupby("cell")["step"].max()
    ours = pd.DataFrame(list(_ours(frame.assign(steps=frame["cell"].map(steps)))))
    published = _published(material)
    theirs = published.assign(
        network=OF_PAPER, hardware="KNL", storage="ImageNet", recipe="larger steps", runs=1, **{"from": "published"},
        accuracy=published["value"], difference=published["value"] - published["value"].iloc[0], verdict="",
    )  # fmt: skip
    known = [f"{name}{end}" for name in MINIMUM if ours[name].notna().any() for end in ENDS]
    columns = [
        "from", "network", "hardware", "storage", "recipe", "batch", "speedup", "step_size", "runs",
        "ended", *(f"accuracy{end}" for end in ENDS), *(f"difference{end}" for end in ENDS), "verdict", *known,
    ]  # fmt: skip
    both = pd.concat([theirs, ours]).reindex(columns=columns)
    names = {
        "batch": "B",
        "speedup": "speedup in iterations",
        "difference": "against the smallest B",
        "ended": "runs ended",
    }
    units = {"batch": "samples", "accuracy": "%", "difference": "%", **dict.fromkeys(MINIMUM, "%")}
    notes = (
        "Published: Keuper & Pfreundt (2016), Table IV; one run each. Ours: best validation accuracy, mean over seeds "
        "with its 90 % interval (Student's t), and the difference with that of Welch's t; of several trials the best "
        "one; a run with a target ended there, and one that diverged has no accuracy. The speedup is that of "
        "iterations alone: so many times fewer.",
        *([GAP] if known else []),
    )
    caption = "Accuracy with larger steps and mini-batches."
    return Made(Typeset(both, caption, "tab:keuper-2016-table-4", units, names, notes), missing, shown)


def _chosen(material: Material, name: str, value: str) -> tuple[pd.DataFrame, tuple[str, ...], str]:
    """Return rows of the best trials of AlexNet (or other networks), the missing cells, and the networks shown instead.

    Only networks with two or more mini-batches are taken.
    """
    frame = material.tables.get(name)
    if frame is None or frame.empty:
        raise Missing(f"no {CELLS}, of {OF_PAPER}")
    several = frame.groupby(CURVE)["batch"].transform("nunique") > 1
    if not several.any():
        raise Missing(f"no {CELLS}, of {OF_PAPER}")
    frame = frame[several]
    if "ended" in frame:
        frame = frame.assign(**{value: frame[value].where(frame["ended"] != DIVERGED)})
    frame = convergence_chart.best_trials(frame, value)
    if (frame["network"] == OF_PAPER).any():
        return frame[frame["network"] == OF_PAPER], (), ""
    others = ", ".join(sorted(frame["network"].unique()))
    return frame, (f"no {CELLS} of {OF_PAPER}",), f"{others} in its place"


def _published(material: Material) -> pd.DataFrame:
    """Return the paper's mini-batches with speedup, step size and accuracy in per cent."""
    entry = material.published[FILE]["large_batches"]
    rows = pd.DataFrame(entry["rows"])
    return rows.assign(
        value=rows["accuracy"],
        series="B = " + rows["batch"].astype(str),
        says=[f"{row['accuracy']} % at B = {row['batch']} ({entry['source']})" for row in entry["rows"]],
    )


def _ours(runs: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for key, curve in runs.groupby(CURVE):
        first: pd.DataFrame | None = None
        for batch, started in curve.groupby("batch"):
            ends = started["ended"].value_counts(sort=False)
            row = {
                **dict(zip(CURVE, key, strict=True)), "from": "this study", "batch": batch, "runs": len(started),
                "ended": ", ".join(f"{count} {end}" if len(started) > 1 else str(end) for end, count in ends.items()),
                "step_size": started["step_size"].iloc[0],
            }  # fmt: skip
            of_batch = started[started["ended"] != DIVERGED]
            if of_batch.empty:
                yield row
                continue
            first = of_batch if first is None else first
            mean, error, freedom = _mean(of_batch["best_accuracy"], 100)
            base, base_error, base_freedom = _mean(first["best_accuracy"], 100)
            both = math.hypot(error, base_error)
            parts = [(one, of) for one, of in ((error, freedom), (base_error, base_freedom)) if of > 0 and one > 0]
            welch = both**4 / sum(one**4 / of for one, of in parts) if parts else 0.0  # Welch-Satterthwaite
            low, high = _interval(mean - base, both, welch if len(of_batch) > 1 and len(first) > 1 else 0.0)
            row["speedup"] = first["steps"].mean() / of_batch["steps"].mean()
            for name, column, factor in (("accuracy", "best_accuracy", 100), *((n, n, f) for n, f in MINIMUM.items())):
                of_runs = _mean(of_batch[column], factor)
                row |= dict(zip((f"{name}{end}" for end in ENDS), (of_runs[0], *_interval(*of_runs)), strict=True))
            if of_batch is not first:
                row |= {"difference": mean - base, "difference_low": low, "difference_high": high}
                row["verdict"] = compared(low, high)
            yield row


def _mean(of_runs: pd.Series[float], factor: float) -> tuple[float, float, int]:
    """Return the mean over runs in per cent, its standard error and degrees of freedom."""
    values = factor * of_runs
    error = float(values.std() / math.sqrt(len(values)))
    return float(values.mean()), error, len(values) - 1


def _interval(value: float, error: float, freedom: float) -> tuple[float, float]:
    if freedom <= 0:
        return math.nan, math.nan
    half = float(student_quantile((1 + INTERVAL) / 2, freedom)) * error
    return value - half, value + half

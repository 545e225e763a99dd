"""Scaling over nodes or workers (Keuper & Pfreundt, Fig. 1; Shi et al., Figs. 2 to 4; the guide's only figure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import altair as alt
import pandas as pd

from stallpoint.questions.study_words import count
from stallpoint.report.charts import axes, marks, shapes, speedup_chart
from stallpoint.report.charts.labels import AXES, arrange, estimate
from stallpoint.report.charts.shapes import Line
from stallpoint.strategies.presets import NONE, Preset, preset_from
from stallpoint.study.kinds import cell_from_json
from stallpoint.study.kinds.train_kind import TrainCell
from stallpoint.text import listed
from stallpoint_papers.exhibits import Made, Material, Missing
from stallpoint_papers.exhibits.study_material import (
    BY_NODES,
    GUIDE_NETWORKS,
    KEUPER_NETWORKS,
    SHI_NETWORKS,
    communicates,
    lacking,
    rows,
    statements,
    with_published,
)

FILE = "shi-2018-exhibits"
STRONG, WEAK = "train cells with scaling: strong", "train cells with scaling: weak"
LINES = (shapes.MEASURED, replace(shapes.PREDICTED, intervals=""))
WORKERS, SPEEDUP = "workers (GPUs)", "speedup over the fewest workers"


def strong(material: Material) -> Made:
    """Return Fig. 1 of Keuper & Pfreundt: the study's own chart, of strong scaling only."""
    cells = f"{STRONG} on two nodes or more"
    frame = rows(material, "predictions", KEUPER_NETWORKS, cells, keep={"scaling": "strong"})
    chart = with_published(material, "fig-01", speedup_chart.draw({"predictions": frame}), BY_NODES)
    return Made(chart, lacking(frame, KEUPER_NETWORKS, cells))


def one_machine(material: Material) -> Made:
    """Return Fig. 2 of Shi et al.: the part of the curves within one node."""
    cells = f"{WEAK} on nodes: 1, with workers_per_node: 1, 2, 4"
    frame = rows(material, "predictions", SHI_NETWORKS, cells, keep={"scaling": "weak", "nodes": 1})
    frame = frame[frame["measured_iteration"].notna()]
    curves = _with_several(_speedups(frame, ["measured", "predicted"]))
    if curves.empty:
        raise Missing(f"no {cells}, of {' or '.join(SHI_NETWORKS)}")
    return Made(_chart(arrange(curves), LINES), lacking(curves, SHI_NETWORKS, cells), _duplicates(curves, material))


def several_machines(material: Material) -> Made:
    """Return Fig. 3 of Shi et al.: speedup of full nodes, with any number of workers, over one full node."""
    cells = f"{WEAK} on nodes: 1, 2, 4"
    frame = rows(material, "predictions", SHI_NETWORKS, cells, keep={"scaling": "weak"})
    frame = frame[frame["ranks"] == frame["nodes"] * frame["workers_per_node"]]
    curves = _over_fewest(frame)
    if curves.empty:
        raise Missing(f"no {cells} of {' or '.join(SHI_NETWORKS)}")
    return Made(_chart(arrange(curves), LINES[:1]), lacking(curves, SHI_NETWORKS, cells), _duplicates(curves, material))


def predicted(material: Material) -> Made:
    """Return Fig. 4 of Shi et al.: points with both a prediction and a measurement."""
    cells = f"{WEAK} (or strong) on several nodes, of layers, all-reduce and storage that were measured"
    frame = rows(material, "predictions", SHI_NETWORKS, cells)
    frame = frame[frame["sync"] != NONE]
    known = frame[frame["measured_speedup"].notna() & frame["predicted_speedup"].notna()]
    weak, strong = (known[known["scaling"] == scaling] for scaling in ("weak", "strong"))
    curves = _with_several(_speedups(weak, ["measured", "predicted"]))
    if curves.empty:
        curves = _with_several(_speedups(strong, ["measured", "predicted"]))
    if curves.empty:
        raise Missing(f"no {cells}, of {' or '.join(SHI_NETWORKS)}")
    return Made(
        _chart(arrange(curves), LINES),
        lacking(curves, SHI_NETWORKS, cells),
        _errors(known[communicates(known)], material),
    )


def ideal(material: Material) -> Made:
    """Return the guide's figure: measured throughput at weak scaling, and the ideal from the fewest workers."""
    cells = f"{WEAK} on several nodes"
    trained = set(material.tables["predictions"]["network"])
    networks = trained & {*GUIDE_NETWORKS} or trained or GUIDE_NETWORKS
    frame = rows(material, "predictions", networks, cells, keep={"scaling": "weak"})
    ends = {"": "", "_low": "_high", "_high": "_low"}  # the longest iterations have the lowest rate
    rates = {f"rate{end}": frame["global_batch"] / frame[f"measured_iteration{of}"] for end, of in ends.items()}
    frame = frame.assign(**rates)[frame["sync"] != NONE]
    curves = _with_several(estimate(frame, "rate").assign(basis="measured"))
    if curves.empty:
        raise Missing(f"no {cells} of {' or '.join(GUIDE_NETWORKS)}")
    curves = arrange(curves)
    line = marks.ideal_rows(curves, "ranks")
    fewest = curves[curves["ranks"] == curves.groupby("panel")["ranks"].transform("min")]
    line["value"] *= line["panel"].map(fewest.groupby("panel")["value"].mean())
    y = axes.log10_y([*axes.span(curves), *line["value"]], "throughput [samples/s]")
    tips = {"series": "series", "ranks": "workers", "shown": "samples/s (90 % interval)"}
    chart = shapes.curves(pd.concat([curves, line]), axes.ranks_x(curves), y, tips, LINES[:1])
    return Made(chart, lacking(curves, GUIDE_NETWORKS, cells))


def _duplicates(curves: pd.DataFrame, material: Material) -> str:
    """Return, in words, which of the shown presets are equal on a CPU; empty if all differ."""
    does: dict[Preset, set[str]] = {}
    for cell in map(cell_from_json, material.tables["runs"]["settings"]):
        if isinstance(cell, TrainCell) and cell.device == "cpu" and cell.sync in set(curves["sync"]):
            does.setdefault(preset_from(cell.preset).on(cell.device), set()).add(cell.sync)
    several = "; ".join(listed(sorted(names)) for names in does.values() if len(names) > 1)
    return f"the same on a CPU, so that any difference between them is chance: {several}" if several else ""


def _errors(frame: pd.DataFrame, material: Material) -> str:
    """Return, in words, mean errors of our predicted iteration times, numbers of points, and the published errors."""
    theirs = {entry["network"]: entry["error"] for entry in statements(material, FILE, "fig-04")}
    errors = frame.dropna(subset="error").assign(size=frame["error"].abs()).groupby("network")["size"]
    texts = [
        f"{network} {100 * error:.1f} % over {count(points, 'point')} (theirs {100 * theirs[network]:.1f} %)"
        for network, error, points in zip(errors.groups, errors.mean(), errors.count(), strict=True)
    ]
    return f"mean error of predicted iteration times that communicate, all presets: {', '.join(texts)}" if texts else ""


def _speedups(frame: pd.DataFrame, bases: Sequence[str]) -> pd.DataFrame:
    return pd.concat([estimate(frame, f"{basis}_speedup").assign(basis=basis) for basis in bases])


def _over_fewest(frame: pd.DataFrame) -> pd.DataFrame:
    """Return measured speedups over each curve's fewest workers; the interval is that of the time only."""
    seconds = "measured_iteration"
    frame = frame[frame[seconds].notna()].sort_values([*AXES, "ranks"], kind="stable")
    rate = frame["global_batch"] / frame[seconds]
    least = rate.groupby([frame[name] for name in AXES]).transform("first")
    ends = {"": rate, "_low": frame["global_batch"] / frame[f"{seconds}_high"]}
    ends["_high"] = frame["global_batch"] / frame[f"{seconds}_low"]
    frame = frame.assign(**{f"speedup{end}": value / least for end, value in ends.items()})
    return _with_several(estimate(frame, "speedup").assign(basis="measured"))


def _with_several(curves: pd.DataFrame) -> pd.DataFrame:
    return curves[curves.groupby(list(AXES))["ranks"].transform("nunique") > 1]


def _chart(curves: pd.DataFrame, lines: Sequence[Line]) -> alt.FacetChart:
    x = axes.counts_x(curves, "ranks", WORKERS)
    ideal = marks.ideal_rows(curves, "ranks")
    y = axes.ratio_y([*axes.span(curves), ideal["value"].max()], SPEEDUP)
    tips = {"series": "series", "ranks": "workers", "basis": "basis", "shown": "speedup (90 % interval)"}
    return shapes.curves(pd.concat([curves, ideal]), x, y, tips, lines)

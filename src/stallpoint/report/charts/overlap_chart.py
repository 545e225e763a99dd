"""One real iteration on a time axis, all ranks (Shi et al., section IV: wait-free back-propagation)."""

from __future__ import annotations

from collections.abc import Iterator

import altair as alt
import pandas as pd

from stallpoint.report.charts import NoData, Tables, marks
from stallpoint.report.charts.labels import AXES, compact_rows, label, placement_in_words, rows, with_interval
from stallpoint.text import number, sort_key

RUN_KEY = ["network", "hardware", "sync"]
POINT = [*AXES, "nodes", "ranks"]
WIDTH, ROW_HEIGHT = 680, 17
MIN_DRAWN_SHARE = 0.004
"""Share of the iteration below which layers are merged."""
CELLS = "train cells on two workers or more whose layers were timed"
FINISH = "end of the backward pass"
LANES = ["computing", "communicating"]
PREDICTED = "predicted"
"""Name of the row below the ranks, which has the passes and messages that the DAG model predicts."""


def draw(tables: Tables) -> alt.FacetChart:
    """Draw one iteration of the run that a menu selects. It has a run for each network, hardware and preset."""
    layers_of = dict(iter(rows(tables, "median_layers", CELLS).groupby(["cell", "rank"])))
    bars = []
    for _, row in _runs(tables).iterrows():
        labels = {name: row[name] for name in ("panel", "network", "hardware")} | {"rank": f"rank {row['rank']}"}
        found = layers_of.get((row["cell"], row["rank"]))
        bars += [labels | bar for bar in _bars(row, found)] if found is not None else []
    for _, row in _runs(tables).drop_duplicates("panel").iterrows():
        labels = {name: row[name] for name in ("panel", "network", "hardware")} | {"rank": PREDICTED}
        bars += [labels | bar for bar in _predicted_bars(tables, row)]
    if not bars:
        raise NoData(f"no {CELLS}")
    frame = pd.DataFrame(bars)
    frame = frame.assign(
        start=1e3 * frame["start"],
        end=1e3 * frame["end"],
        shown=[f"{number(1e3 * a)} to {number(1e3 * b)} ms" for a, b in zip(frame["start"], frame["end"], strict=True)],
    )
    menu = _run_menu(list(dict.fromkeys(frame["panel"])))
    return _chart(frame).transform_filter("datum.panel == overlap_run").add_params(menu)


def _chart(frame: pd.DataFrame) -> alt.FacetChart:
    ranks = sorted(frame["rank"].unique(), key=lambda rank: (rank == PREDICTED, sort_key(rank)))
    base = alt.Chart().encode(
        x=alt.X("start:Q", title="time since the first rank began the iteration [ms]"),
        y=alt.Y("rank:N", sort=ranks, title=None),
        yOffset=alt.YOffset("lane:N", scale=alt.Scale(domain=LANES, paddingInner=0.12)),
    )
    bars = (
        base.transform_filter(f"datum.task != '{FINISH}'")
        .mark_bar(style="piece")
        .encode(
            x2="end:Q",
            color=marks.colour(frame[frame["task"] != FINISH], "task"),
            tooltip=marks.tips(rank="rank", task="task", what="what", shown="from, to", size="gradients"),
        )
    )
    ends = base.transform_filter(f"datum.task == '{FINISH}'").mark_tick(style="mark", thickness=2, bandSize=ROW_HEIGHT)
    height = alt.Step(ROW_HEIGHT, **{"for": "offset"})
    rows = compact_rows(frame, marks.fields([bars, ends], frame))
    chart = alt.layer(bars, ends, data=rows).properties(width=WIDTH, height=height)
    header = alt.Header(labelAnchor="start", labelExpr="split(datum.value, '\\n')")
    return chart.facet(alt.Facet("panel:N", title=None, header=header))


def _run_menu(runs: list[str]) -> alt.Parameter:
    """Return the menu of the web page that selects a run; the first run is selected initially."""
    labels = [run.split("\n")[0] for run in runs]
    menu_binding = alt.binding_select(options=runs, labels=labels, name="run: ") if len(runs) > 1 else alt.Undefined
    return alt.param(name="overlap_run", value=runs[0], bind=menu_binding)


def _runs(tables: Tables) -> pd.DataFrame:
    """Return a row for each rank of every run, in the order of the menu, with the run's heading as ``panel``."""
    frame = rows(tables, "median_iterations", CELLS).sort_values(
        [*RUN_KEY, "rank"], ascending=[True, True, False, True], kind="stable"
    )
    return frame.assign(panel=_headings(frame, tables))


def _headings(chosen: pd.DataFrame, tables: Tables) -> pd.Series[str]:
    """Return the headings of runs: the iteration shown, how many iterations there are, the cost of communication."""
    subject, series = label(chosen, RUN_KEY[:2]), label(chosen, [axis for axis in AXES if axis not in RUN_KEY[:2]])
    iterations = [
        f"\niteration {iteration:.0f} of visit {visit:.0f}: {number(1e3 * wall)} ms, the median of {many:.0f}"
        for iteration, visit, wall, many in chosen[["iteration", "visit", "wall", "iterations"]].to_numpy().tolist()
    ]
    placements = [placement_in_words(run) for _, run in chosen.iterrows()]
    return subject + ": " + series + " · " + placements + iterations + _costs(tables, chosen)


def _costs(tables: Tables, chosen: pd.DataFrame) -> pd.Series[str]:
    """Return in words what communication costs in each run; empty if training without it was not measured."""
    costs = tables.get("hidden_communication")
    if costs is None or costs.empty:
        return pd.Series("", index=chosen.index)
    costs_of_runs = chosen[POINT].merge(costs, on=POINT, how="left").set_index(chosen.index)
    words = zip(with_interval(costs_of_runs, "cost", "s"), with_interval(costs_of_runs, "isolated", "s"), strict=True)
    texts = pd.Series(
        [f"\ncommunicating costs {cost}, its isolated messages take {isolated}" for cost, isolated in words],
        chosen.index,
    )
    return texts.where(costs_of_runs["cost"].notna(), "")


def _bars(row: pd.Series, layers: pd.DataFrame) -> Iterator[dict[str, object]]:
    """Yield the bars of one rank's iteration: computing and messages. Start and end [s] are on the common axis."""
    began = float(row["start"])
    time = began
    passes = (("data wait", "data_wait"), ("host to device", "host_to_device"), ("forward pass", "forward"))
    for task, column in passes:
        yield _bar(LANES[0], task, task, time, time + row[column])
        time += row[column]
    ended = time + row["backward"]
    yield from _backward(layers, time, ended, MIN_DRAWN_SHARE * row["iteration_time"])
    yield _bar(LANES[0], FINISH, FINISH, ended, ended)
    updated = began + row["iteration_time"] - row["update"]
    yield _bar(LANES[0], "update", "update", updated, updated + row["update"])
    sent = layers[layers["all_reduce_end"].notna() & (layers["gradient_bytes"] > 0)]
    message = sent["bucket"].where(sent["bucket"] >= 0, sent["layer_index"])
    for _, of in sent.groupby(message):
        size = f"{number(of['gradient_bytes'].sum() / 1e6)} MB"
        start, end = began + of["all_reduce_start"].min(), began + of["all_reduce_end"].max()
        yield _bar(LANES[1], "all-reduce", _names(list(of["layer"])), start, end, size)


def _predicted_bars(tables: Tables, run: pd.Series) -> Iterator[dict[str, object]]:
    """Yield the bars that the DAG model predicts, from the first rank's forward pass on; none without prediction."""
    all_layers = tables.get("layer_times", pd.DataFrame(columns=POINT))
    layers = all_layers[(all_layers[POINT] == run[POINT]).all(axis=1)].filter(regex=f"^{PREDICTED}_|^layer|^gradient")
    layers = layers.rename(columns=lambda name: name.removeprefix(f"{PREDICTED}_")).dropna(subset="backward")
    if layers.empty:
        return
    forward, backward = layers["forward"].sum(), layers["backward"].sum()
    layers[["all_reduce_start", "all_reduce_end"]] += forward
    layers["bucket"] = pd.factorize(layers["all_reduce_start"])[0]
    forward_start = run["start"] + run["data_wait"] + run["host_to_device"]
    row = dict.fromkeys(["data_wait", "host_to_device", "update"], 0.0) | {"iteration_time": forward + backward}
    for bar in _bars(pd.Series(row | {"start": forward_start, "forward": forward, "backward": backward}), layers):
        if bar["task"] == FINISH or bar["start"] != bar["end"]:
            yield bar


def _backward(layers: pd.DataFrame, start: float, ended: float, min_length: float) -> Iterator[dict[str, object]]:
    """Yield the bars of layers' backward passes, the last layer first. Bars shorter than `min_length` are merged."""
    names: list[str] = []
    at = end = start
    ordered_layers = layers.sort_values("layer_index", ascending=False)
    for name, seconds in zip(ordered_layers["layer"], ordered_layers["backward"].fillna(0.0), strict=True):
        names.append(name)
        end = min(end + seconds, ended)
        if end - at >= min_length:
            yield _bar(LANES[0], "backward pass", _names(names), at, end)
            names, at = [], end
    if names:
        yield _bar(LANES[0], "backward pass", _names(names), at, end)


def _names(layers: list[str]) -> str:
    return layers[0] if len(layers) == 1 else f"{layers[0]} to {layers[-1]}"


def _bar(lane: str, task: str, what: str, start: float, end: float, size: str = "") -> dict[str, object]:
    return {"lane": lane, "task": task, "what": what, "start": start, "end": end, "size": size}


def finding(tables: Tables) -> str:
    """Return the finding: how much communication is exposed in the iteration that the page shows first."""
    chosen = _runs(tables)
    first = chosen[chosen["panel"] == chosen["panel"].iloc[0]]
    sending, exposed = first["communication"].mean(), first["exposed_communication"].mean()
    if not sending > 0:
        return ""
    run = first.iloc[0]
    total, share = f"{number(1e3 * sending, 2)} ms of communication", f"{100 * exposed / sending:.0f}"
    words = {"100": f"all {total} are exposed", "0": f"all {total} overlap the backward pass"}
    exposed_words = f"of {total} {share} % is exposed, the rest overlaps the backward pass"
    return f"{run['network']}, {run['sync']} on {placement_in_words(run)}: {words.get(share, exposed_words)}"

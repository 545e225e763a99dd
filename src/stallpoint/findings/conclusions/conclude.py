"""Findings of the study in numbers: where scaling stalls, why, and how certain that is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from stallpoint.base.frames import records
from stallpoint.base.measured import SERIES
from stallpoint.base.stall import Stall
from stallpoint.base.statistics import INTERVAL, estimate, generator, groups, resampled
from stallpoint.findings.claims.judge import Judged
from stallpoint.findings.conclusions.answer_findings import answer_findings
from stallpoint.findings.conclusions.answers import Conclusions, Estimate, answers
from stallpoint.findings.conclusions.cost_findings import CHOICE, PRODUCTIVE, REMAINING
from stallpoint.findings.conclusions.target_findings import targets
from stallpoint.findings.conclusions.trust_findings import equal_presets, warnings
from stallpoint.findings.finding import Finding, in_json, plain_json
from stallpoint.models.answers.fits import UNKNOWN
from stallpoint.models.answers.remedies import HELPS, TOO_LARGE, UNDECIDED
from stallpoint.models.convergence.steps import TO_TARGET
from stallpoint.models.terms.peaks import MEMORY_AXES
from stallpoint.study.kinds.command_kind import CommandCell
from stallpoint.study.kinds.imported_kinds import ImportedTrainCell
from stallpoint.study.kinds.train_kind import TrainCell

PUBLISHED_ERRORS = {"alexnet": 0.094, "googlenet": 0.047, "resnet50": 0.046}
"""Mean prediction errors of the DAG model, Shi et al. (2018), section V-D."""

MAX_TIMING_SHARE = 0.01
"""Share of an iteration spent timing layers above which there is a warning."""
MAX_CLOSURE_ERROR = 0.02
"""Difference between the sum of layers' times and the pass above which there is a warning."""
SLOW_NODE = 1.2
"""Ratio of a node's sentinel time to the others', median of the visits, above which the node is called slow: as for
slow visits (`disturbances.SLOW`); equal nodes differ by less."""
MIN_VISITS = 2
"""Visits on several nodes before a node is called slow."""

COPIED: dict[str, tuple[str, tuple[str, ...]]] = {
    "amdahl": ("amdahl", (
        "network", "hardware", "basis", "layer_type", "series", "note", "serial_fraction", "speedup_limit",
        "stall_ranks", "points",
    )),
    "memory": ("largest_batch", (
        *MEMORY_AXES, "memory", "basis", "note", "available", "largest_measured", "smallest_failed", "fixed", "slope",
        "largest_batch",
    )),
    "fits": ("fits", (*SERIES, "nodes", "ranks", "worker_batch", "memory", "fits", "predicted", "available")),
    "storage_operations": ("storage_operation_rates", (
        "storage", "hardware", "nodes", "workers_per_node", "operation", "metadata", "seconds", "latency_p95",
        "latency_p99",
    )),
    "break_even": ("break_even", (
        *SERIES, "remedy", "before", "verdict", "nodes", "seconds", "wait_before", "wait_after", "epochs",
    )),
    "critical_batches": ("critical_batches", (
        *TO_TARGET, "ranks", "batches", "largest_reaching", "least_steps", "critical_batch", "noise_scale",
    )),
    "worker_staleness": ("worker_staleness", (
        "network", "hardware", "sync", "ranks", "batch", "worker", "gradients", "largest_staleness", "mean_staleness",
    )),
    "interventions": ("interventions", (
        *SERIES, "nodes", "ranks", "intervention", "parts", "agrees", "saved", "expected",
    )),
    "choices": ("choices", CHOICE),
    "availability": ("availability", PRODUCTIVE),
    "availability_stalling": ("availability_stalling", REMAINING),
    "controls": ("controls", ("hardware", "network", "worker_batch", "first", "second", "agrees", "ratio")),
}  # fmt: skip
"""Entries that are rows of a table: its name and the columns."""
CURVE = (
    *SERIES, "reached", "verdict", "verdict_ranks", "deciding_time", "measured_speedup", "measured_speedup_ranks",
    "basis", "note", "withheld", "dominant_cause", "crossing_ranks", "crossing_after", "cost_efficient_ranks",
    "best_speedup", "largest_measured", "largest_considered",
)  # fmt: skip
"""Columns of the table ``stalling`` in the entry of a curve."""
FEEDING = (
    "nodes", "ranks", "worker_batch", "readers", "basis", "utilisation", "predicted_utilisation", "readers_needed",
)  # fmt: skip
"""Columns of the table ``feeding`` in the entry of a curve."""
READING = ("hardware", "nodes", "workers_per_node", "order", "cache", "readers")
"""Columns of the table ``storage_rates`` that are equal where storages are compared."""
STORAGE = (
    *READING, "storage", "filesystem", "locality", "origin", "server_cache", "uncached", "samples_per_second",
    "bytes_per_second",
)  # fmt: skip
"""Columns of it in an entry."""
REMEDY = (
    "ranks", "remedy", "changes", "also", "upper_bound", "fits", "verdict", "cell", "gain", "memory", "node_hours",
)  # fmt: skip
"""Columns of the table ``remedies`` in the entry of a curve."""


def conclude(
    tables: Mapping[str, pd.DataFrame],
    *,
    threshold: float = 0.10,
    efficiency: float = 0.5,
    claims: Sequence[Judged] = (),
    external: Sequence[Finding] = (),
) -> Conclusions:
    """Return conclusions from the model tables and ``runs``, ``environments``, ``visits``, ``instrumentation``, for
    JSON.

    Unknown and unbounded values are None; estimates are objects with value, low and high. `threshold` and `efficiency`
    are those of the models' fit, `claims` were judged by the same tables; `external` are the answers of tables from
    elsewhere.
    """
    curves, errors = list(_curves(tables)), list(_dag_errors(tables["predictions"]))
    copied = {key: entries(tables[name], *names) for key, (name, names) in COPIED.items()}
    found: Conclusions = {
        "interval": INTERVAL,
        "threshold": threshold,
        "efficiency": efficiency,
        "claims": list(claims),
        "answers": answers(curves, errors),
        "curves": curves,
        "dag_errors": errors,
        **copied,
        "fits": [row for row in copied["fits"] if row["fits"] != UNKNOWN],
        "storages": list(_storages(tables["storage_rates"])),
        "saturation": list(_saturation(tables["saturation"])),
        "targets": list(targets(tables["target_times"], tables["target_stalling"])),
        "accuracy_stalling": list(_accuracy_stalling(tables["accuracy_stalling"])),
        "machines": list(_machines(tables["runs"], tables["environments"])),
        "alike": list(equal_presets(tables["runs"])),
        "disturbances": list(_disturbances(tables["disturbances"])),
        "slow_nodes": list(_slow_nodes(tables["visits"], tables["environments"])),
        "left_out": list(_undecodable(tables["visits"])),
        "ended": list(_ended(tables["runs"], tables["visits"])),
        "planned": list(_planned(tables["runs"], tables["visits"])),
        "instrumentation": list(_instrumentation(tables["instrumentation"])),
        "imported": tables["runs"].query("source != ''")[["cell", "source"]].to_dict("records"),
        "failed": tables["runs"].query("status == 'failed'")[["cell", "reason"]].to_dict("records"),
    }
    answered = [one for answer in found["answers"] for one in answer_findings(answer, found).values()]
    return {"findings": in_json([*answered, *external, *warnings(found)]), **found}


def _estimate(row: Mapping[str, Any], name: str) -> Estimate | None:
    """Return value and interval, where an end that is None is unbounded; None where the value is unknown."""
    if math.isnan(row[name]):
        return None
    found: Estimate = plain_json({"value": row[name], "low": row[f"{name}_low"], "high": row[f"{name}_high"]})
    return found


def _reached(row: Mapping[str, Any], name: str) -> Estimate | None:
    """Return the estimate; None where it lies beyond all that was considered."""
    return _estimate(row, name) if row["reached"] else None


def entries(table: pd.DataFrame, *names: str) -> list[dict[str, Any]]:
    """Return rows with these columns for JSON; a quantity with an interval is an object of the three."""
    return [_entry(row, *names) for row in records(table)]


def _entry(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: _estimate(row, name) if f"{name}_low" in row else plain_json(row[name]) for name in names}


def _curves(tables: Mapping[str, pd.DataFrame]) -> Iterator[dict[str, Any]]:
    """Return an entry for each scaling curve."""
    names = (
        "causes", "data_share", "critical_path", "what_if", "remedies", "next_cells", "predictions",
        "stall_probabilities", "hidden_communication", "feeding",
    )  # fmt: skip
    causes, shares, paths, scenarios, cures, cells, points, stalls, costs, fed = (
        {key: records(rows) for key, rows in groups(tables[name], SERIES)} for name in names
    )
    for row in records(tables["stalling"]):
        key = tuple(row[name] for name in SERIES)
        undecided = row["verdict_ranks"] if row["verdict"] == "undecided" else 0
        widest = max(shares.get(key, []), key=lambda share: share["ranks"], default=None)
        yield {
            **_entry(row, *CURVE),
            "stall_ranks": _reached(row, "stall_ranks"),
            "stall_not_below": None if row["reached"] or row["note"] else int(row["stall_ranks_low"]),
            **_probabilities(stalls.get(key, []), undecided),
            "measured": list(_measured(points.get(key, []))),
            "data_wait": {
                "ranks": widest["ranks"] if widest else row["largest_considered"],
                "share": _estimate(widest, "share") if widest else None,
            },
            "feeding": [_entry(at, *FEEDING) for at in fed.get(key, [])],
            "causes": list(_causes(causes.get(key, []))),
            "critical_path": list(_critical_path(paths.get(key, []))),
            "communication": list(_communication(costs.get(key, []))),
            "what_if": list(_what_if(scenarios.get(key, []), row["largest_measured"])),
            "remedies": list(_remedies(cures.get(key, []))),
            "next_cell": _next_cell(cells.get(key, [])),
        }


def _probabilities(rows: list[dict[str, Any]], undecided: int) -> dict[str, Any]:
    """Return P(stall = n) of the measured and of all known counts, and which counts would decide.

    Where one outcome is likely alone, but `undecided` from so many workers on, too little was measured beyond them
    (`Curve.short`, `Curve.step_only`): their double would decide, or where that was measured twice the largest count.
    """
    found: Conclusions = {
        of: {int(row["ranks"]): float(row["probability"]) for row in rows if row["basis"] == of}
        for of in ("measured", "known")
    }
    outcomes = {
        f"{of}_stall": [
            {"ranks": ranks, "stalls": ranks != max(stall), "probability": stall[ranks]} for ranks in sorted(stall)
        ]
        for of, stall in found.items()
    }
    measured = found["measured"]
    deciding = Stall(dict(sorted(measured.items()))).deciding if measured else []
    if undecided and not deciding:
        largest = max(measured)
        deciding = [2 * (undecided if largest < 2 * undecided else largest)]
    return {**outcomes, "deciding_ranks": deciding}


def _measured(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Return each measured number of workers, rising; speedup and efficiency refer to the fewest."""
    known = sorted((row for row in rows if not math.isnan(row["measured_speedup"])), key=lambda row: row["ranks"])
    for row in known:
        seconds = _estimate(row, "measured_iteration")
        half_width = (row["measured_speedup_high"] - row["measured_speedup_low"]) / (2 * row["measured_speedup"])
        yield {
            **_entry(row, "nodes", "ranks"),
            "seconds": seconds,
            "samples_per_second": _over(row["global_batch"], seconds),
            "speedup": _estimate(row, "measured_speedup"),
            "efficiency": _estimate(row, "measured_efficiency"),
            "half_width": None if row is known[0] else plain_json(half_width),
        }


def _over(amount: float, seconds: Estimate | None) -> Estimate | None:
    """Return `amount` per second: the longest time gives the least."""
    if seconds is None:
        return None
    of = {"value": seconds["value"], "low": seconds["high"], "high": seconds["low"]}
    return {name: plain_json(amount / end) if end else None for name, end in of.items()}


def _critical_path(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for ranks in sorted({row["ranks"] for row in rows}):
        here = sorted((row for row in rows if row["ranks"] == ranks), key=lambda row: -row["share"])
        parts = [_entry(row, "part", "seconds", "share") for row in here]
        yield {**_entry(here[0], "ranks", "basis"), "parts": parts}


def _communication(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    yield from (one for row in rows if (one := _entry(row, "ranks", "cost", "isolated", "hidden"))["cost"])


def _what_if(rows: list[dict[str, Any]], ranks: int) -> Iterator[dict[str, Any]]:
    for scenario in dict.fromkeys(row["scenario"] for row in rows):
        of_scenario = [row for row in rows if row["scenario"] == scenario]
        there = [row for row in of_scenario if row["ranks"] == ranks]
        first = of_scenario[0]
        yield {
            "scenario": scenario,
            "ranks": ranks,
            "gain": _estimate(there[0], "gain") if there else None,
            "stall_ranks": _estimate(first, "stall_ranks") if first["reached"] else None,
            "stall_not_below": None if first["reached"] or first["note"] else int(first["stall_ranks_low"]),
            "largest_considered": int(max(row["ranks"] for row in of_scenario)),
            "note": first["note"],
        }


def _remedies(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Return remedies: those that help, may help, or would if they fitted, the first to try first."""
    for row in sorted(rows, key=lambda row: row["rank_in_curve"]):
        if row["verdict"] in (HELPS, UNDECIDED, TOO_LARGE):
            yield _entry(row, *REMEDY)


def _next_cell(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the cell that narrows most per node-hour; None if none could be judged."""
    if not rows:
        return None
    best = min(rows, key=lambda row: row["rank_in_curve"])
    names = ("kind", "nodes", "ranks", "worker_batch", "width", "expected_width", "node_hours")
    return {name: best[name] for name in names} | {"narrows": bool(best["narrowing"] > 0)}


def _causes(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Return for each number of workers the dominant cause, or the indistinguishable ones, largest first."""
    for ranks in sorted({row["ranks"] for row in rows}):
        here = sorted((row for row in rows if row["ranks"] == ranks), key=lambda row: -row["lost"])
        leading = [row for row in here if row["verdict"] != "minor"]
        yield {
            **_entry(leading[0], "ranks", "basis", "verdict"),
            "leading": [
                {"cause": r["cause"], "lost_seconds": _estimate(r, "lost"), "share": plain_json(r["share"])}
                for r in leading
            ],
        }


def _dag_errors(predictions: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Return the median size of the error by network and hardware, and by preset, where more than one rank ran."""
    compared = predictions[predictions["error"].notna() & (predictions["ranks"] > 1)]
    for (network, hardware), rows in groups(compared, ["network", "hardware"]):
        yield _dag_error(network, hardware, "all", rows)
        for sync, of_sync in groups(rows, "sync"):
            yield _dag_error(network, hardware, sync, of_sync)


def _dag_error(network: str, hardware: str, sync: str, rows: pd.DataFrame) -> dict[str, Any]:
    sizes = rows["error"].abs().to_numpy()
    value, *ends = estimate(resampled(sizes, generator(0, "errors", network, hardware, sync), np.median))
    low, high = (None if math.isnan(end) else end for end in ends)
    return {
        "network": network,
        "hardware": hardware,
        "sync": sync,
        "median_error": {"value": value, "low": low, "high": high},
        "points": len(sizes),
        "published": PUBLISHED_ERRORS.get(network),
    }


def _storages(rates: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Return the read rates by storage and way of reading, and whether their intervals lie apart from the fastest's."""
    for _, rows in groups(rates, list(READING)):
        ranked = records(rows.sort_values("samples_per_second", ascending=False))
        for row in ranked:
            slower = row["samples_per_second_high"] < ranked[0]["samples_per_second_low"]
            other = "slower" if slower else "not distinguishable from the fastest"
            size = {"set_over_memory": row["set_over_memory"]}
            yield {**_entry(row, *STORAGE), **size, "verdict": "fastest" if row is ranked[0] else other}


def _saturation(saturation: pd.DataFrame) -> Iterator[dict[str, Any]]:
    names = (
        "hardware", "storage", "verdict", "deciding", "readers", "workers_per_node", "verdict_ranks",
        "largest_measured", "largest_considered",
    )  # fmt: skip
    for row in records(saturation):
        yield {
            **_entry(row, *names),
            "saturation_ranks": _reached(row, "saturation_ranks"),
        }


def _accuracy_stalling(table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    names = (
        *SERIES, "steps_storage", "steps_sync", "recipe", "target", "verdict", "reached", "verdict_ranks",
        "largest_considered",
    )  # fmt: skip
    for row in records(table):
        yield {**_entry(row, *names), "stall_ranks": _reached(row, "stall_ranks")}


def _machines(runs: pd.DataFrame, environments: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Return for each hardware entry the most processes that trained together, on how many machines, and which.

    Machines of imported training are unknown.
    """
    known = environments.merge(runs[["cell", "hardware", "nodes"]], on="cell")
    for hardware, rows in groups(known, "hardware"):
        of_cells = rows.groupby("cell").agg({"node": "nunique", "rank": "nunique", "nodes": "first"})
        largest = of_cells.sort_values("rank").iloc[-1]
        models = rows["gpu_model"].where(rows["gpu_model"] != "", rows["cpu_model"])
        yield {
            "hardware": hardware,
            "machines": int(largest["node"]),
            "processes": int(largest["rank"]),
            "nodes": int(largest["nodes"]),
            "models": sorted(set(map(str, models))),
            "imported": False,
        }
    kinds = (TrainCell.kind, CommandCell.kind, ImportedTrainCell.kind)
    training = runs[(runs["status"] == "ok") & runs["kind"].isin(kinds)]
    for hardware, rows in groups(training, "hardware"):
        if (rows["kind"] == ImportedTrainCell.kind).all():
            largest = rows.sort_values("ranks").iloc[-1]
            nodes = int(largest["nodes"])
            yield {
                "hardware": hardware, "machines": nodes, "processes": int(largest["ranks"]), "nodes": nodes,
                "models": [], "imported": True,
            }  # fmt: skip


def _ended(runs: pd.DataFrame, visits: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Return for each hardware and reason why visits ended: its cells, and the sum of their visits."""
    visited = visits.groupby("cell")["visit"].nunique()
    measured = runs[runs["ended"].fillna("") != ""]
    for (hardware, ended), rows in groups(measured, ["hardware", "ended"]):
        count = int(visited.reindex(rows["cell"]).fillna(0).sum())
        yield {"hardware": hardware, "ended": ended, "cells": len(rows), "visits": count}


def _planned(runs: pd.DataFrame, visits: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Return for each hardware, kind and placement the expected and actual time of its visits: seconds, node-hours.

    Ends of intervals are added: an error of one expectation is shared by others. A job has the nodes of its largest
    cell, whatever is visited; cells that are visited at the same time share them.
    """
    first = visits[visits["rank"] == 0]
    cells = first.assign(part=first["duration"] / (1 + first["concurrent"])).groupby("cell")[["part", "duration"]].sum()
    share = cells["part"] / cells["duration"]
    measured = runs[(runs["ended"].fillna("") != "") & runs["planned"].notna()]
    max_nodes = measured.groupby("hardware")["nodes"].max()
    for (hardware, kind, nodes, workers), rows in groups(measured, ["hardware", "kind", "nodes", "workers_per_node"]):
        sums = {name: float(rows[name].sum()) for name in ("planned", "planned_low", "planned_high", "duration")}
        own = share.reindex(rows["cell"]).fillna(1.0).to_numpy() * rows["duration"]
        used = max_nodes[hardware] * float(own.sum()) / 3600
        yield {
            "hardware": hardware,
            "kind": kind,
            "nodes": int(nodes),
            "workers_per_node": int(workers),
            "cells": len(rows),
            "planned_seconds": _estimate(sums, "planned"),
            "used_seconds": sums["duration"],
            "used_node_hours": used,
            "idle_node_hours": max(0.0, used - nodes * sums["duration"] / 3600),
            "cells_as_planned": int(rows["duration"].between(rows["planned_low"], rows["planned_high"]).sum()),
        }


def _disturbances(table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Return the number of iterations disturbed on each hardware by each reason, and of those that count
    nevertheless."""
    for (hardware, reason), rows in groups(table, ["hardware", "reason"]):
        kept = int((~rows["excluded"].astype(bool)).sum())
        yield {
            "hardware": hardware,
            "reason": reason,
            "iterations": len(rows),
            "cells": int(rows["cell"].nunique()),
            "kept": kept,
        }


def _undecodable(visits: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Return the storages with samples that cannot be decoded, and the largest number of them skipped."""
    rows = visits[visits["excluded_samples"] > 0]
    storages = rows["cell"].str.extract(r"(?:^|/)storage~([^/]+)", expand=False)
    for storage, samples in rows.groupby(storages)["excluded_samples"].max().items():
        yield {"storage": storage, "samples": int(samples)}


def _slow_nodes(visits: pd.DataFrame, environments: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Return nodes whose sentinel takes `SLOW_NODE` times as long as on the others."""
    products = visits[["product_before", "product_after"]].astype(float).mean(axis=1)
    nodes = environments[["cell", "rank", "node"]].drop_duplicates(["cell", "rank"])
    rows = visits[["cell", "hardware", "visit", "rank"]].assign(product=products).merge(nodes, on=["cell", "rank"])
    of_nodes = rows.groupby(["hardware", "cell", "visit", "node"])["product"].median().dropna().reset_index()
    ratios: dict[tuple[str, str], list[float]] = {}
    for (hardware, *_), there in groups(of_nodes, ["hardware", "cell", "visit"]):
        times = there.set_index("node")["product"]
        for node in times.index if len(times) > 1 else ():
            ratios.setdefault((hardware, str(node)), []).append(times[node] / times.drop(node).median())
    for (hardware, node), found in ratios.items():
        if len(found) >= MIN_VISITS and (ratio := float(np.median(found))) >= SLOW_NODE:
            yield {"hardware": hardware, "node": node, "ratio": ratio, "visits": len(found)}


def _instrumentation(table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Return for each network on each hardware the worst timing error of any rank of any cell."""
    for (network, hardware), rows in groups(table, ["network", "hardware"]):
        closures = {f"{phase}_closure": _farthest_from_1(rows[f"{phase}_closure"]) for phase in ("forward", "backward")}
        entry = {
            "network": network,
            "hardware": hardware,
            "cells": int(rows["cell"].nunique()),
            "timing_cost": float(rows["timing_cost"].max()),
            "timing_share": float(rows["timing_share"].max()),
            **closures,
        }
        yield {**entry, "warnings": list(_timing_warnings(entry))}


def _farthest_from_1(values: pd.Series[float]) -> float:
    return max(map(float, values), key=lambda value: abs(value - 1))


def _timing_warnings(entry: Mapping[str, Any]) -> Iterator[str]:
    if entry["timing_share"] > MAX_TIMING_SHARE:
        yield f"timing the layers takes up to {100 * entry['timing_share']:.2g} % of an iteration"
    for phase in ("forward", "backward"):
        if abs(entry[f"{phase}_closure"] - 1) > MAX_CLOSURE_ERROR:
            yield f"layers add up to {100 * entry[f'{phase}_closure']:.1f} % of the {phase} pass"

"""How sure is all this: how did visits end, what was disturbed, do equal cells agree, does the model predict well?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from statistics import median

import numpy as np
import pandas as pd

from stallpoint.base.section import NOTE, WARNING, Absence, Finding, Section, TableRow, TextTable, interval_of
from stallpoint.base.statistics import estimate, generator, groups, resampled
from stallpoint.questions.study_tables import StudyTables, unique_names
from stallpoint.questions.study_words import count
from stallpoint.strategies.presets import Preset, preset_from
from stallpoint.study.workers import nodes_and_workers
from stallpoint.text import listed, number

TITLE, KIND = "How sure this is", "trust"
SLOW_NODE = 1.2
"""Ratio of a node's sentinel time to that of the others, median over visits, above which the node is called slow, as
are visits (`disturbances.MIN_SLOWDOWN`); equal nodes differ by less."""
MIN_VISITS = 2
"""Visits on several nodes before a node is called slow."""
END_REASONS = {
    "precision": "precision reached",
    "budget": "budget used up",
    "visits": "fixed number of visits reached",
    "max visits": "no cell is to be visited more often",
}
"""Reasons why visits ended, in words."""
IMPRECISE_REASONS = ("budget", "max visits")
"""Reasons after which intervals are wider than was asked for."""


def section(study: StudyTables) -> Section:
    """Return the section: findings that qualify the answers, and the tables behind them."""
    ended, disturbed, slow = list(_ended_rows(study)), list(_disturbed_rows(study)), list(slow_nodes(study))
    findings = tuple(_findings(study, ended, disturbed, slow))
    control_rows = study.rows("controls")
    grids = (
        _visits(ended), _planned_table(study), _disturbances(disturbed), _slow_node_table(slow),
        _controls_table(control_rows),
    )  # fmt: skip
    shown = tuple(grid for grid in grids if grid.rows)
    if not findings and not shown:
        return Section("sure", TITLE, "How sure", "Nothing was visited.", absence=Absence.NOT_MEASURED)
    remark = "" if control_rows else "There are no A/A controls: no two cells on one worker do the same."
    return Section("sure", TITLE, "How sure", remark, findings, shown)


def _findings(
    study: StudyTables, ended: list[TableRow], disturbed: list[TableRow], slow: list[TableRow]
) -> Iterator[Finding]:
    if study.impossible:
        yield Finding(KIND, "records", f"a value is impossible: {study.impossible}", WARNING, first=True)
    for row in ended:
        words = f"{count(row['cells'], 'cell')}, {count(row['visits'], 'visit')}: {_end_reason(row)}"
        is_imprecise = row["ended"] in IMPRECISE_REASONS
        finding_words = f"the precision was not reached: {words}" if is_imprecise else words
        yield _finding(row["hardware"], finding_words, WARNING if is_imprecise else "", first=is_imprecise)
    yield from _speedup_precisions(study)
    for (hardware, network), words in model_errors(study).items():
        yield _finding(hardware, words, network=network)
    yield from map(_disturbance, disturbed)
    visits = study.tables["visits"]
    for hardware in unique_names(visits["hardware"][visits["node_busy_error"].isna()]):
        words = "other processes on its CPUs were not watched for: they are part of what was measured"
        yield _finding(hardware, words, NOTE)
    for row in slow:
        words = f"{row['node']} computes {row['ratio']:.2g} times as long as the other nodes, which wait for it"
        yield _finding(row["hardware"], f"{words} (sentinel, median of {count(row['visits'], 'visit')})", WARNING,
                       first=True)  # fmt: skip
    for storage, samples in excluded_samples(study).items():
        verb = "is" if samples == 1 else "are"
        words = f"{count(samples, 'sample')} that cannot be decoded {verb} excluded"
        yield Finding(KIND, f"storage {storage}", words, WARNING, about={"storage": storage}, first=True)
    yield from _agreement(study)


def _finding(hardware: str, words: str, verdict: str = "", *, network: str = "", first: bool = False) -> Finding:
    about = {name: value for name, value in (("hardware", hardware), ("network", network)) if value}
    return Finding(KIND, f"{network} on {hardware}" if network else hardware, words, verdict, about=about, first=first)


# --- visits ---------------------------------------------------------------------------------------


def _ended_rows(study: StudyTables) -> Iterator[TableRow]:
    """Yield the numbers of cells and of visits, by hardware and by the reason why visits ended."""
    runs, visits = study.tables["runs"], study.tables["visits"]
    visit_counts = visits.groupby("cell")["visit"].nunique()
    for (hardware, ended), rows in groups(runs[runs["ended"].fillna("") != ""], ["hardware", "ended"]):
        total = int(visit_counts.reindex(rows["cell"]).fillna(0).sum())
        yield TableRow(hardware=hardware, ended=ended, cells=len(rows), visits=total)


def _end_reason(row: TableRow) -> str:
    return END_REASONS.get(row["ended"], str(row["ended"]))


def _visits(rows: list[TableRow]) -> TextTable:
    text = (
        "Cells that are compared are measured in an interleaved schedule: each is visited several times, in random "
        "order, so that a temporary slowdown of the machine affects all equally."
    )
    return TextTable.of({
        "hardware": "hardware", "cells": "cells", "visits": "visits", "ended because": _end_reason,
    }, rows, "Visits", text)  # fmt: skip


def _planned_table(study: StudyTables) -> TextTable:
    """Return the table of the visits' expected and actual time, for each hardware, kind of cell and placement.

    The ends of the expectations' intervals are added, as their errors are common. A job holds the nodes of its largest
    cell all the time. Cells that are visited at the same time share these nodes.
    """
    text = (
        "What visits were expected to take when their job was submitted, and what they took. Node-hours are those "
        "of a job, which has as many nodes as its largest cell; those that a smaller cell does not use are idle."
    )
    return TextTable.of({
        "hardware": "hardware", "kind": "kind",
        "nodes": lambda row: nodes_and_workers((row["nodes"], row["workers_per_node"])), "cells": "cells",
        "planned [s]": interval_of("planned"), "used [s]": lambda row: number(row["duration"]),
        "used [node-hours]": lambda row: number(row["used"]), "idle [node-hours]": lambda row: number(row["idle"]),
        "cells as planned": "as_planned",
    }, list(planned_rows(study)), "Planned and used", text)  # fmt: skip


def planned_rows(study: StudyTables) -> Iterator[TableRow]:
    """Yield the rows of the table of planned and used time."""
    runs, visits = study.tables["runs"], study.tables["visits"]
    first = visits[visits["rank"] == 0]
    cells = first.assign(part=first["duration"] / (1 + first["concurrent"])).groupby("cell")[["part", "duration"]].sum()
    share = cells["part"] / cells["duration"]
    measured = runs[(runs["ended"].fillna("") != "") & runs["planned"].notna()]
    max_nodes = measured.groupby("hardware")["nodes"].max()
    for (hardware, kind, nodes, workers), rows in groups(measured, ["hardware", "kind", "nodes", "workers_per_node"]):
        sums = {name: float(rows[name].sum()) for name in ("planned", "planned_low", "planned_high", "duration")}
        shared = share.reindex(rows["cell"]).fillna(1.0).to_numpy() * rows["duration"]
        used = max_nodes[hardware] * float(shared.sum()) / 3600
        idle = max(0.0, used - nodes * sums["duration"] / 3600)
        within = int(rows["duration"].between(rows["planned_low"], rows["planned_high"]).sum())
        yield TableRow(
            sums, hardware=hardware, kind=kind, nodes=int(nodes), workers_per_node=int(workers), cells=len(rows),
            used=used, idle=idle, as_planned=within,
        )  # fmt: skip


# --- precision of speedups and predictions --------------------------------------------------------


def _speedup_precisions(study: StudyTables) -> Iterator[Finding]:
    for hardware in unique_names(curve["hardware"] for curve in study.curves):
        points = [at for curve in study.curves if curve["hardware"] == hardware for at in curve.measured[1:]]
        if widths := [at.half_width for at in points if at.half_width < float("inf")]:
            spread = f" in the median, ± {number(100 * max(widths), 2)} % at most" if len(widths) > 1 else ""
            noun = "speedups" if len(widths) > 1 else "speedup"
            yield _finding(hardware, f"measured {noun} known to ± {number(100 * median(widths), 2)} %{spread}")


def model_errors(study: StudyTables) -> dict[tuple[str, str], str]:
    """Return in words how far predictions on several ranks are off, for each hardware and network."""
    predictions = study.tables["predictions"]
    compared = predictions[predictions["error"].notna() & (predictions["ranks"] > 1)]
    found = {}
    for (hardware, network), rows in groups(compared, ["hardware", "network"]):
        sizes = rows["error"].abs().to_numpy()
        value, low, high = estimate(resampled(sizes, generator(0, "errors", network, hardware, "all"), np.median))
        ends = "" if low != low else f" ({number(100 * low, 2)}–{number(100 * high, 2)})"
        points = count(len(sizes), "measured point")
        found[hardware, network] = f"model {number(100 * value, 2)} %{ends} off (median of {points})"
    return found


# --- disturbances ---------------------------------------------------------------------------------


def _disturbed_rows(study: StudyTables) -> Iterator[TableRow]:
    """Yield a row for each hardware, reason and kind (iterations, or visits to collectives and reads): the number of
    disturbances, and how many of them are kept."""
    found = study.tables["disturbances"]
    disturbed_part = found["iteration"].notna().map({True: "iteration", False: "visit to messages or reads"})
    for (hardware, reason, of), rows in groups(found.assign(of=disturbed_part), ["hardware", "reason", "of"]):
        kept = int((~rows["excluded"].astype(bool)).sum())
        cells = int(rows["cell"].nunique())
        yield TableRow(hardware=hardware, reason=reason, of=of, disturbed=len(rows), cells=cells, kept=kept)


def _disturbance(row: TableRow) -> Finding:
    words = f"{_disturbed_in_words(row)} disturbed by {row['reason']}, {_excluded_in_words(row)}"
    return _finding(row["hardware"], words, WARNING if row["kept"] else NOTE, first=bool(row["kept"]))


def _disturbed_in_words(row: TableRow) -> str:
    one, _, rest = str(row["of"]).partition(" ")
    return f"{count(row['disturbed'], one)} {rest}".rstrip()


def _excluded_in_words(row: TableRow) -> str:
    """Return how many of a row's disturbances are excluded from statistics, and how many are kept."""
    kept, excluded = row["kept"], row["disturbed"] - row["kept"]
    if not kept:
        return "excluded"
    return f"{excluded} excluded, {kept} kept for want of others" if excluded else "kept for want of others"


def _disturbances(rows: list[TableRow]) -> TextTable:
    text = "What something else disturbed is excluded from statistics, unless too little of its cell would be left."
    return TextTable.of({
        "hardware": "hardware", "reason": "reason", "disturbed": _disturbed_in_words, "cells": "cells",
        "what became of them": _excluded_in_words,
    }, rows, "Disturbances", text)  # fmt: skip


def slow_nodes(study: StudyTables) -> Iterator[TableRow]:
    """Yield the nodes whose sentinel takes at least `SLOW_NODE` times as long as on the other nodes."""
    visits, environments = study.tables["visits"], study.tables["environments"]
    products = visits[["product_before", "product_after"]].astype(float).mean(axis=1)
    nodes = environments[["cell", "rank", "node"]].drop_duplicates(["cell", "rank"])
    rows = visits[["cell", "hardware", "visit", "rank"]].assign(product=products).merge(nodes, on=["cell", "rank"])
    node_times = rows.groupby(["hardware", "cell", "visit", "node"])["product"].median().dropna().reset_index()
    ratios: dict[tuple[str, str], list[float]] = {}
    for (hardware, *_), there in groups(node_times, ["hardware", "cell", "visit"]):
        times = there.set_index("node")["product"]
        for node in times.index if len(times) > 1 else ():
            ratios.setdefault((hardware, str(node)), []).append(times[node] / times.drop(node).median())
    for (hardware, node), found in ratios.items():
        if len(found) >= MIN_VISITS and (ratio := float(np.median(found))) >= SLOW_NODE:
            yield TableRow(hardware=hardware, node=node, ratio=ratio, visits=len(found))


def _slow_node_table(rows: list[TableRow]) -> TextTable:
    text = (
        "The sentinel, the same matrix products on every node at both ends of each visit, takes longer there. "
        "Nothing is excluded for it: speedups are those of nodes of which one is slower."
    )
    return TextTable.of({
        "hardware": "hardware", "node": "node", "its time over that of the others": lambda row: number(row["ratio"]),
        "visits": "visits",
    }, rows, "Slow nodes", text)  # fmt: skip


def excluded_samples(study: StudyTables) -> dict[str, int]:
    """Return for each storage with undecodable samples the most samples that a visit excluded."""
    visits = study.tables["visits"]
    rows = visits[visits["excluded_samples"] > 0]
    storages = rows["cell"].str.extract(r"(?:^|/)storage~([^/]+)", expand=False)
    return {str(name): int(samples) for name, samples in rows.groupby(storages)["excluded_samples"].max().items()}


# --- agreement of equal cells ---------------------------------------------------------------------


def _agreement(study: StudyTables) -> Iterator[Finding]:
    if controls := study.rows("controls"):
        agree = sum(bool(row["agrees"]) for row in controls)
        verb = "agrees" if len(controls) == 1 else "agree"
        pairs = count(len(controls), "pair")
        yield Finding(KIND, "A/A controls", f"{agree} of {pairs} of cells that do the same {verb}")
    for hardware, presets in equal_presets(study.tables["runs"]):
        yield _finding(hardware, f"{listed(presets)} do the same; any difference between them is chance")
    for hardware in study.untrusted:
        yield _finding(hardware, "verdicts are withheld, as cells that do the same differ", WARNING, first=True)


def equal_presets(runs: pd.DataFrame) -> list[tuple[str, list[str]]]:
    """Return groups of two or more presets that do the same on one hardware; `runs` is the tidy table."""
    measured = runs[(runs["kind"] == "train") & (runs["source"] == "")]
    found: dict[tuple[str, Preset], set[str]] = {}
    for settings in map(json.loads, measured["settings"]):
        if settings["scaling"] != "compute":
            behaviour = preset_from(settings["preset"]).on(settings["device"])
            found.setdefault((settings["hardware"], behaviour), set()).add(settings["sync"])
    return sorted((hardware, sorted(presets)) for (hardware, _), presets in found.items() if len(presets) > 1)


def _controls_table(rows: list[TableRow]) -> TextTable:
    text = (
        "On one worker all presets do the same, and so does a compute cell of the same b. Their iteration times must "
        "agree; on hardware where any pair differs (at 5 % over all its pairs), verdicts are withheld."
    )
    return TextTable.of({
        "hardware": "hardware", "network": "network", "b": "worker_batch", "first": "first", "second": "second",
        "second over first": interval_of("ratio"), "agrees": lambda row: "yes" if row["agrees"] else "no",
    }, rows, "A/A controls", text, file="models/controls.parquet")  # fmt: skip

"""One row for each answer and its system, for comparison with other clusters."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

import stallpoint
from stallpoint.findings.conclusions.answers import Conclusions

COLUMNS = {
    "system": "hardware entry",
    "nodes": "nodes of the row: where the verdict was seen, or the fewest where one count was measured",
    "workers": "workers on them",
    "accelerators": "GPUs, or CPUs where workers compute on these",
    "software": "PyTorch and MPI library",
    "network": "",
    "scaling": "strong (B stays) or weak (b stays)",
    "batch": "B, or b for weak scaling",
    "storage": "",
    "sync": "the preset that is fastest there",
    "samples_per_second": "throughput with its 90 % interval",
    "samples_per_second_low": "",
    "samples_per_second_high": "",
    "speedup": "relative to the fewest workers, with its 90 % interval",
    "speedup_low": "",
    "speedup_high": "",
    "efficiency": "speedup over that many times the workers",
    "verdict": "stalls, scales, undecided or withheld",
    "verdict_ranks": "workers it stalls at or scales to; of undecided, those whose double is in question",
    "evidence": "cells and visits behind it, whether cells that do the same agree, disturbed iterations",
    "measured": "date of the first visit",
    "stallpoint": "version",
}
"""Columns of the table and their meaning; empty: as in the study."""


def systems(conclusions: Conclusions, runs: pd.DataFrame, environments: pd.DataFrame) -> str:
    """Return the table as CSV (RFC 4180, UTF-8, a header line first)."""
    written = io.StringIO()
    rows = csv.DictWriter(written, list(COLUMNS), lineterminator="\n")
    rows.writeheader()
    rows.writerows(_rows(conclusions, runs, environments.merge(runs[["cell", "hardware"]], on="cell")))
    return written.getvalue()


def _rows(conclusions: Conclusions, runs: pd.DataFrame, environments: pd.DataFrame) -> Iterator[dict[str, Any]]:
    models = {machine["hardware"]: machine["models"] for machine in conclusions["machines"]}
    for answer in conclusions["answers"]:
        hardware = answer["hardware"]
        at = answer["at"] or answer["base"]
        known = environments[environments["hardware"] == hardware]
        yield {
            **{name: answer[name] for name in ("network", "scaling", "batch", "storage", "sync")},
            "system": hardware,
            "nodes": at["nodes"] if at else "",
            "workers": at["ranks"] if at else "",
            "accelerators": ", ".join(models.get(hardware, ())),
            "software": _software(known),
            **(_interval(at, "samples_per_second") if at else {}),
            **(_interval(at, "speedup") if at else {}),
            "efficiency": _digits(at["efficiency"]["value"]) if at else "",
            "verdict": answer["state"],
            "verdict_ranks": answer["ranks"] or "",
            "evidence": _evidence(conclusions, hardware),
            "measured": min(runs.loc[runs["hardware"] == hardware, "started"]).date().isoformat(),
            "stallpoint": stallpoint.__version__,
        }


def _interval(at: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = at[name] or dict.fromkeys(("value", "low", "high"))
    return {name: _digits(found["value"]), **{f"{name}_{end}": _digits(found[end]) for end in ("low", "high")}}


def _digits(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _software(rows: pd.DataFrame) -> str:
    """Return the distinct versions."""
    torch = sorted({f"PyTorch {version}" for version in rows["torch"]})
    mpi = sorted({library.split(",")[0] for library in rows["mpi_library"]} - {""})
    return "; ".join([*torch, *mpi])


def _evidence(conclusions: Conclusions, hardware: str) -> str:
    if any(machine["imported"] for machine in conclusions["machines"] if machine["hardware"] == hardware):
        return "imported"
    here = {
        name: [entry for entry in conclusions[name] if entry["hardware"] == hardware]
        for name in ("ended", "controls", "disturbances")
    }
    agree = sum(control["agrees"] for control in here["controls"])
    texts = [
        f"{sum(one['cells'] for one in here['ended'])} cells",
        f"{sum(one['visits'] for one in here['ended'])} visits",
        f"{agree} of {len(here['controls'])} A/A controls agree",
        f"{sum(one['iterations'] for one in here['disturbances'])} iterations disturbed",
    ]
    return ", ".join(texts)

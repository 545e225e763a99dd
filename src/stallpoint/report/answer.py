"""Where scaling stalls and why: one card for each network and hardware."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import pandas as pd

from stallpoint.charts.frames import AXES, label
from stallpoint.conclusions.numbers import Conclusions
from stallpoint.conclusions.words import crossing_in_words, next_in_words, stall_in_words, summary, worthwhile_in_words
from stallpoint.report.html import Section, interval, paragraph, table

CURVE_AXES = [axis for axis in AXES if axis not in ("network", "hardware")]
HEAD = [
    "curve", "stalls at n", "why there (or at the largest n)", "communication reaches compute at n",
    "worth paying for up to n", "best speedup", "waiting for data", "measure next",
]  # fmt: skip


def answer(conclusions: Conclusions) -> Section:
    """The answer in words, then each curve with its intervals."""
    curves = conclusions["curves"]
    if not curves:
        nothing = "No scaling curve was measured: the study has no train cell with scaling strong or weak that ran."
        return Section("answer", "Answer", paragraph(nothing))
    places = dict.fromkeys((curve["network"], curve["hardware"]) for curve in curves)
    return Section("answer", "Answer", "\n".join(_card(*place, conclusions) for place in places))


def _card(network: str, hardware: str, conclusions: Conclusions) -> str:
    curves = [c for c in conclusions["curves"] if (c["network"], c["hardware"]) == (network, hardware)]
    others: Conclusions = {name: [] for name in ("claims", "dag_errors", "instrumentation", "imported", "failed")}
    words = summary({**conclusions, "curves": curves, **others})
    prefix = f"{network} on {hardware}, "
    points = "".join(f"<li>{escape(line.removeprefix(prefix))}</li>" for line in words)
    rows = [[name, *_row(curve)] for name, curve in zip(label(pd.DataFrame(curves), CURVE_AXES), curves, strict=True)]
    return (
        f'<div class="card"><h3>{escape(network)} on {escape(hardware)}</h3><ul>{points}</ul>{table(HEAD, rows)}</div>'
    )


def _row(curve: Mapping[str, Any]) -> list[str]:
    return [
        _stall(curve), curve["dominant_cause"], crossing_in_words(curve), worthwhile_in_words(curve),
        interval(curve["best_speedup"]), _wait(curve["data_wait"]), next_in_words(curve),
    ]  # fmt: skip


def _stall(curve: Mapping[str, Any]) -> str:
    if curve["reached"]:
        return f"{interval(curve['stall_nodes'])}, {curve['basis']}"
    if curve["note"]:
        return stall_in_words(curve)
    return f"not up to {curve['largest_considered']}, measured up to {curve['largest_measured']}"


def _wait(wait: Mapping[str, Any]) -> str:
    return f"{interval(wait['share'], 100, ' %')} at n = {wait['nodes']}"

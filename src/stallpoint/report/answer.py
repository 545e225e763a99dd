"""Where scaling stalls and why, at a glance: a card with a verdict and a small chart for each network and hardware."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from html import escape
from typing import Any, TypeAlias

from stallpoint.charts import Tables, verdict
from stallpoint.charts.frames import number
from stallpoint.charts.render import Spec, drawn
from stallpoint.conclusions.numbers import Conclusions
from stallpoint.conclusions.words import instrumentation_warnings
from stallpoint.report.html import Section, belongs_to, downloads, interval, paragraph

Curve: TypeAlias = Mapping[str, Any]

UNKNOWN = "not distinguishable"
KEY = (
    '<p class="key"><span class="measured">measured</span><span class="predicted">predicted by the DAG model</span>'
    '<span class="ideal">ideal</span><span class="stall">stalls here, and the interval of that</span></p>'
)


def answer(conclusions: Conclusions, tables: Tables) -> tuple[Section, dict[str, Spec]]:
    """The section, and the specs of its charts by name."""
    curves = conclusions["curves"]
    warnings = "".join(_warnings(conclusions))
    if not curves:
        nothing = "No scaling curve was measured: the study has no train cell with scaling strong or weak that ran."
        return Section("answer", "Answer", warnings + paragraph(nothing)), {}
    cards: list[str] = []
    specs: dict[str, Spec] = {}
    places = _grouped(curves, "network", "hardware")
    order = list(dict.fromkeys(network for network, _ in places))
    for network, hardware in sorted(places, key=lambda place: order.index(place[0])):  # one network's side by side
        name = f"verdict-{len(cards)}"
        specs[name] = drawn(partial(verdict.draw, tables, network, hardware))
        cards.append(_card(name, network, hardware, places[network, hardware]))
    return Section("answer", "Answer", f'{warnings}{KEY}<div class="cards">{"".join(cards)}</div>'), specs


def _grouped(curves: Sequence[Curve], *axes: str) -> dict[tuple[Any, ...], list[Curve]]:
    """The curves by their values of `axes`, in order of appearance."""
    found: dict[tuple[Any, ...], list[Curve]] = {}
    for curve in curves:
        found.setdefault(tuple(curve[axis] for axis in axes), []).append(curve)
    return found


def _card(name: str, network: str, hardware: str, curves: Sequence[Curve]) -> str:
    title = f"{network} on {hardware}"
    alike = _grouped(curves, "scaling", "storage")
    storages = len({storage for _, storage in alike})
    verdicts = "".join(_verdict(group, name_storage=storages > 1) for group in alike.values())
    which = f", the {verdict.MOST_CURVES} fastest" if len(curves) > verdict.MOST_CURVES else ""
    return (
        f'<article class="card"{belongs_to({"network": network, "hardware": hardware})}><h3>{escape(title)}</h3>'
        f'{verdicts}<div class="chart" id="chart-{name}" data-title="{escape(title)}"></div>'
        f'<p class="beside"><span class="soft">speedup over nodes{which}</span>{downloads(name, title)}</p></article>'
    )


def _verdict(curves: Sequence[Curve], *, name_storage: bool) -> str:
    """Where curves of one network, hardware, scaling and storage stall, and why."""
    first = curves[0]
    stalled = [curve for curve in curves if curve["reached"]]
    which = f"{first['scaling']} scaling" + (f" from {first['storage']}" if name_storage else "")
    if stalled:
        headline, basis = _stall(stalled)
    elif all(curve["note"] for curve in curves):
        headline, basis = "Not known where it stalls", ""
    else:
        headline, basis = f"No stall up to n = {max(curve['largest_considered'] for curve in curves)}", _reach(curves)
    tag = f' <span class="tag">{basis}</span>' if basis else ""
    sentence = f"{which}: {'; '.join(_because(curves, stalled))}."
    return (
        f'<div class="verdict"{belongs_to(first)}><p class="headline">{escape(headline)}{tag}</p>'
        f"<p>{escape(sentence[0].upper() + sentence[1:])}</p></div>"
    )


def _stall(stalled: Sequence[Curve]) -> tuple[str, str]:
    """From the first to the last stalling point, the reach of their intervals, and whether they were measured."""
    points = [curve["stall_nodes"] for curve in stalled]
    values = sorted(point["value"] for point in points)
    where = number(values[0]) if values[0] == values[-1] else f"{number(values[0])} to {number(values[-1])}"
    low = min(point["low"] for point in points)
    high = None if any(point["high"] is None for point in points) else max(point["high"] for point in points)
    bases = {curve["basis"] for curve in stalled}
    basis = bases.pop() if len(bases) == 1 else "partly predicted"
    reach = f"[{number(low)}, {'∞' if high is None else number(high)}]"
    certain = not any(map(_covers_all, stalled))
    return f"{'Stalls' if certain else 'May stall'} at n = {where} {reach}", basis


def _reach(curves: Sequence[Curve]) -> str:
    """How far the answer was measured."""
    measured = max(curve["largest_measured"] for curve in curves)
    considered = max(curve["largest_considered"] for curve in curves)
    return "measured" if measured >= considered else f"measured up to {measured}, then predicted"


def _because(curves: Sequence[Curve], stalled: Sequence[Curve]) -> Iterator[str]:
    """The rest of the sentence: how many curves, how sure, why, and how far it is worth going."""
    if 0 < len(stalled) < len(curves):
        yield f"{len(stalled)} of {len(curves)} curves"
    if notes := [curve["note"] for curve in curves if curve["note"]]:
        yield notes[0]
    if any(_covers_all(curve) for curve in stalled):
        yield "the interval covers every node count"
    causes = Counter(curve["dominant_cause"] for curve in stalled or curves if curve["dominant_cause"])
    if causes:
        cause = causes.most_common(1)[0][0]
        reason = "because of" if stalled else "most time is lost to"
        yield f"{reason} {cause}" if cause != UNKNOWN else "causes cannot be told apart"
    fastest = [curve for curve in curves if curve["best_speedup"]]
    if fastest:
        best = max(fastest, key=lambda curve: curve["best_speedup"]["value"] or 0)
        measured, considered = best["largest_measured"], best["largest_considered"]
        seen = f" ({measured} measured)" if considered > measured else ""
        yield f"best speedup {interval(best['best_speedup'])}, n ≤ {considered}{seen}"


def _covers_all(curve: Curve) -> bool:
    low, high = curve["stall_nodes"]["low"], curve["stall_nodes"]["high"]
    return low <= 1 and (high is None or high >= curve["largest_considered"])


def _warnings(conclusions: Conclusions) -> Iterator[str]:
    """What a reader has to know before trusting the verdicts, each with a link to more."""
    texts = [
        (line.removeprefix("warning: "), "timing") for line in instrumentation_warnings(conclusions["instrumentation"])
    ]
    for name, what in (("failed", "could not run"), ("imported", "imported, not measured here")):
        if count := len(conclusions[name]):
            texts.append((f"{count} cell{'s' if count > 1 else ''} {what}", "cells"))
    for text, anchor in texts:
        yield f'<p class="warning"><a href="#{anchor}">{escape(text)}</a></p>'

"""Where scaling stalls and why, at a glance: a card with a verdict and a small chart for each network and hardware."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from html import escape
from typing import Any, TypeAlias

from stallpoint.charts import Tables, verdict
from stallpoint.charts.render import Spec, drawn
from stallpoint.conclusions.numbers import Conclusions
from stallpoint.conclusions.words import (
    instrumentation_warnings,
    leading,
    mistrusted,
    predicted_in_words,
    reason_in_words,
    verdict_in_short,
    which,
)
from stallpoint.report.html import Section, belongs_to, downloads, paragraph

Curve: TypeAlias = Mapping[str, Any]

UNKNOWN = "not distinguishable"
VERBS = {
    "stalls": ("stalls", "stall"),
    "scales": ("scales", "scale"),
    "undecided": ("is undecided", "are undecided"),
    "withheld": ("is withheld", "are withheld"),
}
"""What one curve, and several, are said to do."""
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
    """What was measured of curves of one network, hardware, scaling and storage, by the one that leads, and why."""
    best = leading(curves)
    scaling = f"{best['scaling']} scaling" + (f" from {best['storage']}" if name_storage else "")
    headline = _capital(verdict_in_short(best))
    tag = "" if best["verdict"] == "withheld" or not best["verdict_nodes"] else ' <span class="tag">measured</span>'
    sentence = f"{scaling}: {'; '.join(_because(best, curves))}."
    return (
        f'<div class="verdict"{belongs_to(best)}><p class="headline">{escape(headline)}{tag}</p>'
        f"<p>{escape(_capital(sentence))}</p></div>"
    )


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _because(best: Curve, curves: Sequence[Curve]) -> Iterator[str]:
    """The rest of the sentence: by which curve, how sure, what is predicted, why, and what the other curves do."""
    yield f"{reason_in_words(best)} ({which(best, curves)})"
    if best["verdict"] == "withheld":
        return
    if predicted := predicted_in_words(best):
        yield predicted
    if cause := best["dominant_cause"]:
        reason = "because of" if best["verdict"] == "stalls" else "most time is lost to"
        yield f"{reason} {cause}" if cause != UNKNOWN else "causes cannot be told apart"
    said = Counter(curve["verdict"] for curve in curves)
    if len(said) > 1:
        yield f"of {len(curves)} curves " + ", ".join(
            f"{count} {VERBS[verdict][count > 1]}" for verdict, count in said.items()
        )


def _warnings(conclusions: Conclusions) -> Iterator[str]:
    """What a reader has to know before trusting the verdicts, each with a link to more."""
    texts = [
        (line.removeprefix("warning: "), "timing") for line in instrumentation_warnings(conclusions["instrumentation"])
    ]
    for hardware in mistrusted(conclusions):
        texts.append((f"{hardware}: cells that do the same differ, so verdicts are withheld", "sure"))
    if kept := sum(entry["kept"] for entry in conclusions["disturbances"]):
        one = kept == 1
        texts.append((f"{kept} disturbed iteration{'' if one else 's'} count{'s' * one} for want of others", "sure"))
    for name, what in (("failed", "could not run"), ("imported", "imported, not measured here")):
        if count := len(conclusions[name]):
            texts.append((f"{count} cell{'s' if count > 1 else ''} {what}", "cells"))
    for text, anchor in texts:
        yield f'<p class="warning"><a href="#{anchor}">{escape(text)}</a></p>'

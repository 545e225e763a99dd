"""The answers: sentences and cards, what reached a target first, what would help, and every curve."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from html import escape
from typing import Any

import pandas as pd

from stallpoint.base.statistics import SAME_WITHIN
from stallpoint.findings.conclusions.answer_findings import (
    CARD,
    CURVE,
    GAIN,
    HEADLINE,
    HELP,
    MACHINE,
    MAX_REMEDIES,
    RATE,
    TRUST,
    VERDICT,
    WITHHELD,
    answer_findings,
    machine_in_words,
    subject,
)
from stallpoint.findings.conclusions.answers import Answer, Conclusions, competing, leading
from stallpoint.findings.conclusions.conclusion_words import (
    CURVE_COLUMNS,
    REMEDY_COLUMNS,
    at_count,
    count,
    gained_in_words,
    named_in_words,
    next_in_words,
)
from stallpoint.findings.conclusions.target_findings import FACTORS, STALLING, TARGET_CURVE, lead, stalling
from stallpoint.findings.conclusions.trust_findings import warnings
from stallpoint.findings.finding import Finding
from stallpoint.findings.listing import in_columns
from stallpoint.models.answers.remedies import HELPS
from stallpoint.models.answers.time_to_accuracy import FASTEST
from stallpoint.report.charts import Tables, speedup_chart
from stallpoint.report.charts.labels import AXES, label, with_interval
from stallpoint.report.charts.render import Spec, drawn
from stallpoint.report.charts.time_to_target_chart import best
from stallpoint.report.html import Section, belongs_to, downloads, paragraph, table
from stallpoint.text import listed, number

KEY = (
    '<p class="key"><span class="measured">measured</span><span class="predicted">predicted, nobody measured it</span>'
    '<span class="ideal">ideal</span><span class="stall">stalling point with its 90 % interval</span></p>'
)
ELSEWHERE = (HELP, MACHINE, TRUST)
"""Kinds that a card states elsewhere, or in short."""


def answer(conclusions: Conclusions, tables: Tables) -> tuple[Section, dict[str, Spec]]:
    """Return the section, and the specs of its charts by name."""
    answers, warned = conclusions["answers"], "".join(_warnings(conclusions))
    if not answers:
        nothing = "No scaling curve was measured: the study has no train cell with scaling strong or weak that ran."
        return Section("answer", "Answer", warned + paragraph(nothing) + _targets(conclusions)), {}
    cards: list[str] = []
    sentences: list[str] = []
    specs: dict[str, Spec] = {}
    for (network, hardware, batch), here in places(answers).items():
        name = f"verdict-{len(cards)}"
        specs[name] = drawn(partial(speedup_chart.draw_verdict, tables, network, hardware, batch))
        found = [answer_findings(one, conclusions) for one in here]
        cards.append(_card(name, here, found))
        sentences.append(_sentence(found[0][VERDICT], name_hardware=len(conclusions["machines"]) > 1))
    text = f'<p class="lead">{" ".join(sentences)} <em>And more below.</em></p>{_targets(conclusions)}'
    return Section("answer", "Answer", f'{text}{warned}{KEY}<div class="cards">{"".join(cards)}</div>'), specs


def _targets(conclusions: Conclusions) -> str:
    """Return what reached each target first, and where time to it stalls; the page shows the first chosen one's."""
    if not (found := conclusions["targets"]):
        return ""
    text = " ".join(f"<span{belongs_to(one)}>{escape(lead(one))}.</span>" for one in found)
    every = f" (one of {count(len(found), 'target')})" if len(found) > 1 else ""
    return f'<p class="target"><a href="#targets">Time to accuracy</a>{every}: {text}</p>'


def places(answers: Sequence[Answer]) -> dict[tuple[str, str, int], list[Answer]]:
    """Return the answers on each card, by network, hardware entry and B with its own verdict; a network's side by
    side."""
    order = list(dict.fromkeys(one["network"] for one in answers))
    found: dict[tuple[str, str, int], list[Answer]] = {}
    for one in sorted(answers, key=lambda answer: order.index(answer["network"])):
        found.setdefault((one["network"], one["hardware"], one["of_batch"]), []).append(one)
    return found


def _sentence(one: Finding, *, name_hardware: bool) -> str:
    where = f" on {one.about['hardware']}" if name_hardware else ""
    return f"<span{_belongs_to_card(one)}>{escape(one.words + where)}.</span>"


def _belongs_to_card(one: Finding) -> str:
    return belongs_to({**one.about, "storage": ""})


def _card(name: str, answers: Sequence[Answer], found: Sequence[Mapping[str, Finding]]) -> str:
    first = found[0]
    title = f"{subject(answers[0])} on {answers[0]['hardware']}"
    curves = sum(one["curves"] for one in answers)
    over = "nodes" if all(one["workers_per_node"] == 1 for one in answers) else "workers"
    fastest = f", the {speedup_chart.MAX_CURVES} fastest" if curves > speedup_chart.MAX_CURVES else ""
    return (
        f'<article class="card"{_belongs_to_card(first[VERDICT])}><h3>{escape(title)}</h3>{_answer(first)}'
        f'<div class="chart" id="chart-{name}" data-title="{escape(title)}"></div>'
        f'<p class="beside"><span class="soft">speedup over {over}{fastest}</span>{downloads(name, title)}</p>'
        f"{''.join(map(_further, found[1:]))}"
        f'<p class="trust"><a href="#sure">{escape(first[TRUST].words)}</a></p></article>'
    )


def _answer(found: Mapping[str, Finding]) -> str:
    """Return the measurement of one scaling and storage, by the fastest curve; then the prediction."""
    headline = found[HEADLINE]
    source = f' <span class="tag">{headline.evidence}</span>' if headline.evidence else ""
    lines = [found[kind] for kind in CARD if kind in found and kind not in ELSEWHERE]
    texts = "".join(f"<p>{f'<b>{one.label}</b> ' if one.label else ''}{escape(one.words)}</p>" for one in lines)
    return (
        f'<div class="verdict {escape(found[VERDICT].verdict)}"{belongs_to(headline.about)}>'
        f'<p class="headline">{escape(headline.words)}{source}</p>'
        f'<p class="rate">{escape(found[RATE].words)}</p><p>{escape(found[GAIN].words)}</p>{texts}</div>'
    )


def _further(found: Mapping[str, Finding]) -> str:
    """Return another scaling or storage of the same card, on one line."""
    verdict = found[VERDICT]
    gain = f": {found[GAIN].words}" if verdict.value is not None and WITHHELD not in found else ""
    return (
        f'<div class="verdict {escape(verdict.verdict)}"{belongs_to(verdict.about)}><p><b>{escape(found[CURVE].words)}'
        f"</b> {escape(found[HEADLINE].words + gain)}</p></div>"
    )


def _warnings(conclusions: Conclusions) -> Iterator[str]:
    """Return the machines measured, and what qualifies the answers, each with a link to more."""
    texts = [(f"{at['hardware']}: {machine_in_words(at)}", "environment") for at in conclusions["machines"]]
    texts += [(one.words, one.kind) for one in warnings(conclusions)]
    for text, anchor in texts:
        yield f'<p class="warning"><a href="#{anchor}">{escape(text)}</a></p>'


# --- time to a target -----------------------------------------------------------------------------

TARGETS = (
    "Of each preset the recipe and mini-batch that were soonest. What takes longer than the fastest takes more steps, "
    "longer ones, or both: the product of the two. Predicted is a time from the steps at other mini-batches and "
    "iterations at other places."
)
TARGET_HEAD = ["workers", "preset", "with", "time", "predicted", "over the fastest", "steps", "each step", "verdict"]
TIMES = {"time": "s", "predicted": "s"}
"""Columns of the table target_times, and their units."""


def targets(conclusions: Conclusions, tables: Tables) -> list[Section]:
    """Return a section with a table for each reached target; none without one."""
    if not conclusions["targets"]:
        return []
    ways, blocks = best(tables), [paragraph(TARGETS)]
    for target in conclusions["targets"]:
        here = ways[(ways[TARGET_CURVE] == [target[name] for name in TARGET_CURVE]).all(axis=1)]
        blocks.append(f"<div{belongs_to(target)}><h3>{escape(lead(target))}</h3>{_of_target(here)}</div>")
    if conclusions["accuracy_stalling"]:
        blocks += [paragraph(STALLING), table(*stalling(conclusions), conclusions["accuracy_stalling"])]
    return [Section("targets", "Time to accuracy", "".join(blocks))]


def _of_target(ways: pd.DataFrame) -> str:
    """Return the table of a target: at each number of workers the fastest first."""
    ways = ways.sort_values(["ranks", "time"], kind="stable")
    fastest = ways["verdict"] == FASTEST
    estimates = [
        pd.Series(with_interval(ways, name, unit), ways.index).where(ways[name].notna(), "not known")
        for name, unit in TIMES.items()
    ]
    factors = [pd.Series(with_interval(ways, name), ways.index).mask(fastest, "1") for name in FACTORS]
    columns = [ways["ranks"].astype(str), ways["sync"], ways["way"], *estimates, *factors, ways["verdict"]]
    return table(TARGET_HEAD, list(zip(*columns, strict=True)))


# --- remedies and curves --------------------------------------------------------------------------

REMEDIES = (
    "Predicted throughput over that predicted for training as it is, on the most workers that were measured. Helps: "
    f"the whole interval lies above a gain of {100 * SAME_WITHIN:.0f} %, as equal studies differ by about as much; "
    f"undecided: it holds {100 * SAME_WITHIN:.0f} %. At most: what the remedy avoids is taken to cost nothing "
    "afterwards. To confirm a remedy, add the lines of its cell to the study."
)


def remedies(conclusions: Conclusions) -> Section:
    """Return a table for each curve, open for those that answer; curves without remedies have none."""
    found = conclusions["curves"]
    shown_curves = [curve for curve in found if curve["remedies"]]
    if not shown_curves:
        return Section("remedies", "What would help", paragraph("No remedy is predicted to help."))
    names = dict(zip(map(id, found), label(pd.DataFrame(found), list(AXES)), strict=True))
    answering = {id(leading(alike)) for alike in competing(found)}
    shown_curves.sort(key=lambda curve: id(curve) not in answering)
    blocks = "".join(_of_curve(curve, names[id(curve)], shown=id(curve) in answering) for curve in shown_curves)
    return Section("remedies", "What would help", paragraph(REMEDIES) + blocks)


def _of_curve(curve: Mapping[str, Any], name: str, *, shown: bool) -> str:
    entries: Sequence[Mapping[str, Any]] = curve["remedies"]
    first = [entry for entry in entries if entry["verdict"] == HELPS][:MAX_REMEDIES]
    others = [entry for entry in entries if entry not in first]
    headline = f"{named_in_words(first[0])}, {gained_in_words(first[0])}" if first else "nothing is sure to help"
    summary = f"{name}, {at_count(curve, entries[0]['ranks'])}: {headline}"
    counts = Counter(entry["verdict"] for entry in others)
    kinds = listed([f"{many} {verdict}" for verdict, many in counts.items()])
    more = f"<details><summary>{count(len(others), 'other')}: {escape(kinds)}</summary>{_table(others)}</details>"
    return (
        f"<details{' open' if shown else ''}{belongs_to(curve)}>"
        f"<summary>{escape(summary)}</summary>"
        f"{_table(first) if first else ''}{more if others else ''}</details>"
    )


def _table(entries: Sequence[Mapping[str, Any]]) -> str:
    """Return the remedies, and below them their cells."""
    return table(*in_columns(entries, REMEDY_COLUMNS)) + "".join(map(_cell, entries))


def _cell(remedy: Mapping[str, Any]) -> str:
    if not remedy["cell"]:
        return ""
    hours = f" ({number(remedy['node_hours'], 2)} node-hours)" if remedy["node_hours"] is not None else ""
    summary = f"The cell that would confirm: {remedy['remedy']}{hours}"
    return f"<details><summary>{escape(summary)}</summary><pre>{escape(remedy['cell'])}</pre></details>"


def curves(conclusions: Conclusions) -> Section:
    """Return one row for each curve."""
    found = conclusions["curves"]
    if not found:
        return Section("curves", "Every curve", paragraph("None."))
    names = label(pd.DataFrame(found), list(AXES))
    named = [{**curve, "curve": name} for name, curve in zip(names, found, strict=True)]
    columns = {"curve": "curve", **CURVE_COLUMNS, "measure next": next_in_words}
    return Section("curves", "Every curve", table(*in_columns(named, columns), found))

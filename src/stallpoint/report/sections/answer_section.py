"""The answer at a glance: one sentence, what it rests on, and a card for each network and hardware entry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from html import escape
from typing import Any

from stallpoint.findings.conclusions.answers import Answer
from stallpoint.findings.conclusions.conclusion_words import (
    batch_in_words,
    beyond_in_words,
    cause_in_words,
    count,
    gain_in_words,
    heading,
    helps_in_words,
    imported_beside,
    instrumentation_warnings,
    left_out_in_words,
    likely_in_words,
    machine_in_words,
    mistrusted,
    prefetch_in_words,
    rivals_in_words,
    sentence,
    slow_node_in_words,
    source_in_words,
    throughput_in_words,
    trust_in_words,
)
from stallpoint.findings.conclusions.numbers import Conclusions
from stallpoint.findings.conclusions.target_words import lead
from stallpoint.report.charts import Tables, verdict_chart
from stallpoint.report.charts.render import Spec, drawn
from stallpoint.report.html import Section, belongs_to, downloads, paragraph

KEY = (
    '<p class="key"><span class="measured">measured</span><span class="predicted">predicted, nobody measured it</span>'
    '<span class="ideal">ideal</span><span class="stall">stalling point with its 90 % interval</span></p>'
)
MOST_SENTENCES = 6
"""Answers that are told above the cards."""
Machines = Sequence[Mapping[str, Any]]


def answer(conclusions: Conclusions, tables: Tables) -> tuple[Section, dict[str, Spec]]:
    """The section, and the specs of its charts by name."""
    answers, machines = conclusions["answers"], conclusions["machines"]
    warnings = "".join(_warnings(conclusions))
    if not answers:
        nothing = "No scaling curve was measured: the study has no train cell with scaling strong or weak that ran."
        return Section("answer", "Answer", warnings + paragraph(nothing) + _targets(conclusions)), {}
    cards: list[str] = []
    sentences: list[str] = []
    specs: dict[str, Spec] = {}
    for (network, hardware), here in places(answers).items():
        name = f"verdict-{len(cards)}"
        specs[name] = drawn(partial(verdict_chart.draw, tables, network, hardware))
        cards.append(_card(name, here, conclusions))
        sentences.append(_sentence(here[0], machines, name_hardware=len(machines) > 1))
    more = f" And {len(sentences) - MOST_SENTENCES} more below." if len(sentences) > MOST_SENTENCES else ""
    told = f'<p class="lead">{" ".join(sentences[:MOST_SENTENCES])}{more}</p>{_targets(conclusions)}'
    return Section("answer", "Answer", f'{told}{warnings}{KEY}<div class="cards">{"".join(cards)}</div>'), specs


def _sentence(one: Answer, machines: Machines, *, name_hardware: bool) -> str:
    where = f" on {one['hardware']}" if name_hardware else ""
    return f"<span{belongs_to(one | {'storage': ''})}>{escape(sentence(one, machines) + where)}.</span>"


def _targets(conclusions: Conclusions) -> str:
    """What reached each target first, and where time to it stalls: the page shows that of the first that is chosen."""
    if not (found := conclusions["targets"]):
        return ""
    told = " ".join(f"<span{belongs_to(one)}>{escape(lead(one))}.</span>" for one in found)
    every = f" (one of {count(len(found), 'target')})" if len(found) > 1 else ""
    return f'<p class="target"><a href="#targets">Time to accuracy</a>{every}: {told}</p>'


def places(answers: Sequence[Answer]) -> dict[tuple[str, str], list[Answer]]:
    """The answers on each card, by network and hardware entry; one network's side by side."""
    order = list(dict.fromkeys(one["network"] for one in answers))
    found: dict[tuple[str, str], list[Answer]] = {}
    for one in sorted(answers, key=lambda answer: order.index(answer["network"])):
        found.setdefault((one["network"], one["hardware"]), []).append(one)
    return found


def _card(name: str, answers: Sequence[Answer], conclusions: Conclusions) -> str:
    first, machines = answers[0], conclusions["machines"]
    title = f"{first['network']} on {first['hardware']}"
    further = "".join(_further(one, machines) for one in answers[1:])
    curves = sum(one["curves"] for one in answers)
    over = "nodes" if all(one["workers_per_node"] == 1 for one in answers) else "workers"
    fastest = f", the {verdict_chart.MOST_CURVES} fastest" if curves > verdict_chart.MOST_CURVES else ""
    return (
        f'<article class="card"{belongs_to(first | {"storage": ""})}><h3>{escape(title)}</h3>'
        f"{_answer(first, answers, machines)}"
        f'<div class="chart" id="chart-{name}" data-title="{escape(title)}"></div>'
        f'<p class="beside"><span class="soft">speedup over {over}{fastest}</span>{downloads(name, title)}</p>'
        f'{further}<p class="trust"><a href="#sure">{escape(trust_in_words(first, conclusions))}</a></p></article>'
    )


def _answer(one: Answer, answers: Sequence[Answer], machines: Machines) -> str:
    """What was measured of one scaling and storage, by the fastest curve; then what is predicted."""
    told = not one["why_withheld"] and one["ranks"]
    source = f' <span class="tag">{source_in_words(one, machines)}</span>' if told else ""
    where, beyond = beyond_in_words(one, machines)
    lines = {
        "": one["why_withheld"],
        "most likely": likely_in_words(one),
        "largest loss": "" if one["why_withheld"] else cause_in_words(one),
        where: beyond,
        "would help": helps_in_words(one, limit=1),
        "curve": _which(one, answers),
    }
    texts = "".join(f"<p>{f'<b>{name}</b> ' if name else ''}{escape(text)}</p>" for name, text in lines.items() if text)
    return (
        f'<div class="verdict {escape(one["state"])}"{belongs_to(one)}>'
        f'<p class="headline">{escape(heading(one, machines))}{source}</p>'
        f'<p class="rate">{escape(throughput_in_words(one))}</p>'
        f"<p>{escape(gain_in_words(one))}</p>{texts}</div>"
    )


def _further(one: Answer, machines: Machines) -> str:
    """Another scaling or storage of the same card, on one line."""
    what = f"{one['scaling']} scaling, {batch_in_words(one)}, {one['storage']}"
    gain = f": {gain_in_words(one)}" if one["at"] and not one["why_withheld"] else ""
    return (
        f'<div class="verdict {escape(one["state"])}"{belongs_to(one)}><p><b>{escape(what)}</b> '
        f"{escape(heading(one, machines) + gain)}</p></div>"
    )


def _which(one: Answer, answers: Sequence[Answer]) -> str:
    """Which curve leads: its mini-batch and preset, and whatever else its rivals or the card's other answers vary."""
    texts = [f"{one['scaling']} scaling", batch_in_words(one), one["sync"]]
    if one["workers_per_node"] > 1:
        texts.append(f"{one['workers_per_node']} workers per node")
    if "prefetch" in one["differ"]:
        texts.append(prefetch_in_words(one))
    if len({other["storage"] for other in answers}) > 1:
        texts.append(one["storage"])
    return ", ".join(texts) + rivals_in_words(one)


def _warnings(conclusions: Conclusions) -> Iterator[str]:
    """What it was measured on, and what a reader has to know before trusting it, each with a link to more."""
    texts = [(f"{at['hardware']}: {machine_in_words(at)}", "environment") for at in conclusions["machines"]]
    texts += [
        (line.removeprefix("warning: "), "timing") for line in instrumentation_warnings(conclusions["instrumentation"])
    ]
    for hardware in mistrusted(conclusions):
        texts.append((f"{hardware}: cells that do the same differ, so verdicts are withheld", "sure"))
    texts += [(f"{one['hardware']}: {slow_node_in_words(one)}", "sure") for one in conclusions["slow_nodes"]]
    texts += [(left_out_in_words(one), "sure") for one in conclusions["left_out"]]
    for entry in conclusions["ended"]:
        if entry["ended"] in ("budget", "most visits"):
            texts.append((f"{entry['hardware']}: the precision was not reached", "sure"))
    disturbed = sum(entry["iterations"] for entry in conclusions["disturbances"])
    if disturbed:
        kept = sum(entry["kept"] for entry in conclusions["disturbances"])
        counts = f"{kept} of them count for want of others" if kept else "left out"
        texts.append((f"{count(disturbed, 'iteration')} disturbed, {counts}", "sure"))
    if failed := conclusions["failed"]:
        texts.append((f"{count(len(failed), 'cell')} could not run", "cells"))
    if imported := imported_beside(conclusions):
        texts.append((f"{count(imported, 'cell')} imported, not measured here", "cells"))
    for text, anchor in texts:
        yield f'<p class="warning"><a href="#{anchor}">{escape(text)}</a></p>'

"""The answer at a glance: one sentence, its grounds, and a card for each network and hardware entry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from html import escape

from stallpoint.findings.conclusions.answer_findings import (
    CARD,
    CURVE,
    GAIN,
    HEADLINE,
    HELP,
    MACHINE,
    RATE,
    TRUST,
    VERDICT,
    WITHHELD,
    answer_findings,
    machine_in_words,
    subject,
)
from stallpoint.findings.conclusions.answers import Answer, Conclusions
from stallpoint.findings.conclusions.conclusion_words import count
from stallpoint.findings.conclusions.target_findings import lead
from stallpoint.findings.conclusions.trust_findings import (
    warnings,
)
from stallpoint.findings.finding import Finding
from stallpoint.report.charts import Tables, verdict_chart
from stallpoint.report.charts.render import Spec, drawn
from stallpoint.report.html import Section, belongs_to, downloads, paragraph

KEY = (
    '<p class="key"><span class="measured">measured</span><span class="predicted">predicted, nobody measured it</span>'
    '<span class="ideal">ideal</span><span class="stall">stalling point with its 90 % interval</span></p>'
)
MAX_SENTENCES = 6
"""Number of answers stated above the cards."""
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
        specs[name] = drawn(partial(verdict_chart.draw, tables, network, hardware, batch))
        found = [answer_findings(one, conclusions) for one in here]
        cards.append(_card(name, here, found))
        sentences.append(_sentence(found[0][VERDICT], name_hardware=len(conclusions["machines"]) > 1))
    more = f" And {len(sentences) - MAX_SENTENCES} more below." if len(sentences) > MAX_SENTENCES else ""
    text = f'<p class="lead">{" ".join(sentences[:MAX_SENTENCES])}{more}</p>{_targets(conclusions)}'
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
    fastest = f", the {verdict_chart.MAX_CURVES} fastest" if curves > verdict_chart.MAX_CURVES else ""
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

"""Judged claims as a part of the report's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from stallpoint.claims.words import CAPTION, HEAD, combinations, decides, verdict_in_words

ANCHOR, TITLE = "claims", "What papers claim"
FOLDED = 3
"""Combinations shown without unfolding."""


def claims_section(judged: Sequence[Mapping[str, Any]]) -> str:
    """A table for each paper; charts are linked as ``#<chart>``. Empty without claims."""
    if not judged:
        return ""
    papers = dict.fromkeys(claim["paper"] for claim in judged)
    tables = (
        f"<h3>{escape(paper)}</h3>{_table([claim for claim in judged if claim['paper'] == paper])}" for paper in papers
    )
    return (
        f'<section id="{ANCHOR}"><h2>{TITLE}</h2><p class="soft">{escape(CAPTION)}</p>'
        f'<p>{_counts(judged)}</p>{"".join(tables)}</section>'
    )


def _counts(judged: Sequence[Mapping[str, Any]]) -> str:
    verdicts = [claim["verdict"] for claim in judged]
    return escape(", ".join(f"{verdicts.count(name)} {name}" for name in dict.fromkeys(sorted(verdicts))))


def _table(claims: Sequence[Mapping[str, Any]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in HEAD)
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(map(_row, claims))}</table></div>'


def _row(claim: Mapping[str, Any]) -> str:
    chart = claim["chart"]
    cells = [
        escape(claim["source"]),
        f"<strong>{escape(verdict_in_words(claim))}</strong>",
        _numbers(claim),
        f'<a href="#{escape(chart)}">{escape(chart)}</a>' if chart else "",
    ]
    reading = f'<br><span class="soft">{escape(claim["reading"])}</span>' if claim["reading"] else ""
    named = zip(HEAD[1:], cells, strict=True)
    rest = "".join(f'<td data-head="{escape(name)}">{cell}</td>' for name, cell in named)
    first = f'<th scope="row" class="claim" id="claim-{escape(claim["id"])}">{escape(claim["sentence"])}{reading}</th>'
    return f"<tr>{first}{rest}</tr>"


def _numbers(claim: Mapping[str, Any]) -> str:
    """What decides, then each combination; many are folded."""
    found = [escape(text) for text in combinations(claim)]
    lead = f'<span class="soft">{escape(decides(claim))}</span><br>' if decides(claim) else ""
    if len(found) <= FOLDED:
        return lead + "<br>".join(found)
    return f"{lead}<details><summary>{len(found)} combinations</summary>{'<br>'.join(found)}</details>"

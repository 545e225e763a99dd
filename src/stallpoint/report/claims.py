"""Judged claims as a part of the report's page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from stallpoint.claims.words import CAPTION, HEAD, combinations, counted, decides, verdict_in_words
from stallpoint.report.html import Section

FOLDED, MOST = 3, 60
"""Combinations shown without unfolding, and at all: however large a study is, its page stays small."""


def claims_section(judged: Sequence[Mapping[str, Any]]) -> Section:
    """The counts, and below each paper's counts a table to unfold; charts are linked as ``#<chart>``."""
    papers = dict.fromkeys(claim["paper"] for claim in judged)
    tables = (_paper(paper, [claim for claim in judged if claim["paper"] == paper]) for paper in papers)
    text = f'<p class="soft">{escape(CAPTION)}</p><p>{_counts(judged)}</p>{"".join(tables)}'
    return Section("claims", "What papers claim", text)


def _paper(paper: str, claims: Sequence[Mapping[str, Any]]) -> str:
    return (
        f'<details class="paper"><summary><strong>{escape(paper)}</strong>: {_counts(claims)}</summary>'
        f"{_table(claims)}</details>"
    )


def _counts(judged: Sequence[Mapping[str, Any]]) -> str:
    claims = f"{len(judged)} claim{'' if len(judged) == 1 else 's'}"
    return f"{claims}, {escape(counted(Counter(claim['verdict'] for claim in judged)))}"


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
    first = f'<th scope="row" id="claim-{escape(claim["id"])}">{escape(claim["sentence"])}{reading}</th>'
    return f"<tr>{first}{rest}</tr>"


def _numbers(claim: Mapping[str, Any]) -> str:
    """What decides, then each combination; many are folded."""
    found = [escape(text) for texts in combinations(claim) for text in texts]
    lead = f'<span class="soft">{escape(decides(claim))}</span><br>' if decides(claim) else ""
    if len(found) <= FOLDED:
        return lead + "<br>".join(found)
    more = [f"and {len(found) - MOST} more, in claims.parquet"] if len(found) > MOST else []
    return f"{lead}<details><summary>each of {len(found)}</summary>{'<br>'.join(found[:MOST] + more)}</details>"

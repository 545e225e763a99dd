"""What papers claim, judged, and their exhibits: pictures and tables, how they differ, reasons for missing ones."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from stallpoint.findings.claims.claim_words import CAPTION, combinations, counted, decides, verdict_in_words
from stallpoint.findings.claims.judge import FAILS, HOLDS, UNCLEAR, UNTESTED, VERDICTS
from stallpoint.report.exhibits.make import ABSENT, INDEX, Entry, notes
from stallpoint.report.html import Section, paragraph, table

COLUMNS = ("verdict", "claim", "numbers", "source and chart")
BADGES = {HOLDS: "holds", FAILS: "refuted", UNCLEAR: "undecided", UNTESTED: "waits for"}
FOLDED, MAX_COMBINATIONS = 3, 60
"""Combinations shown without unfolding, and in total: the page stays small for any study."""


def claims_section(judged: Sequence[Mapping[str, Any]]) -> Section:
    """Return the counts, and below each paper's counts a table to unfold; charts are linked as ``#<chart>``."""
    papers = dict.fromkeys(claim["paper"] for claim in judged)
    tables = (_of_paper(paper, [claim for claim in judged if claim["paper"] == paper]) for paper in papers)
    text = f'<p class="soft">{escape(CAPTION)}</p><p>{_counts(judged)}</p>{"".join(tables)}'
    return Section("claims", "What papers claim", text)


def _of_paper(paper: str, claims: Sequence[Mapping[str, Any]]) -> str:
    return (
        f'<details class="paper"><summary><strong>{escape(paper)}</strong>: {_counts(claims)}</summary>'
        f"{_table(claims)}</details>"
    )


def _counts(judged: Sequence[Mapping[str, Any]]) -> str:
    claims = f"{len(judged)} claim{'' if len(judged) == 1 else 's'}"
    return f"{claims}, {escape(counted(Counter(claim['verdict'] for claim in judged)))}"


def _table(claims: Sequence[Mapping[str, Any]]) -> str:
    """Return tested claims with their verdicts first; then the waiting ones, by what they wait for."""
    tested = [claim for claim in claims if claim["verdict"] != UNTESTED]
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in COLUMNS)
    rows = "".join(map(_row, sorted(tested, key=lambda claim: VERDICTS.index(claim["verdict"]))))
    table = f'<table class="claims"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>' if tested else ""
    waiting: dict[str, list[Mapping[str, Any]]] = {}
    for claim in claims:
        if claim["verdict"] == UNTESTED:
            waiting.setdefault(_missing(claim), []).append(claim)
    return table + "".join(_waiting(why, them) for why, them in waiting.items())


def _missing(claim: Mapping[str, Any]) -> str:
    return next((entry["missing"] for entry in claim["combinations"] if entry["missing"]), "its table")


def _waiting(why: str, claims: Sequence[Mapping[str, Any]]) -> str:
    items = "".join(
        f'<li id="claim-{escape(claim["id"])}">{escape(claim["sentence"])} '
        f'<span class="soft">{escape(claim["source"])}</span></li>'
        for claim in claims
    )
    return f'<p class="waits">{_badge(UNTESTED)} {escape(why)}</p><ul>{items}</ul>'


def _badge(verdict: str) -> str:
    return f'<span class="badge {verdict.replace(" ", "-")}">{escape(BADGES[verdict])}</span>'


def _row(claim: Mapping[str, Any]) -> str:
    chart = claim["chart"]
    differ = f'<br><span class="soft">{escape(verdict_in_words(claim))}</span>' if len(claim["counts"]) > 1 else ""
    reading = f'<br><span class="soft">{escape(claim["reading"])}</span>' if claim["reading"] else ""
    link = f' <a href="#{escape(chart)}">{escape(chart)}</a>' if chart else ""
    cells = {
        COLUMNS[2]: _numbers(claim),
        COLUMNS[3]: escape(claim["source"]) + link,
    }
    rest = "".join(f'<td data-head="{escape(name)}">{cell}</td>' for name, cell in cells.items())
    verdict = f'<td data-head="">{_badge(claim["verdict"])}{differ}</td>'
    sentence = f'<th scope="row" id="claim-{escape(claim["id"])}">{escape(claim["sentence"])}{reading}</th>'
    return f"<tr>{verdict}{sentence}{rest}</tr>"


def _numbers(claim: Mapping[str, Any]) -> str:
    """Return what decides, then each combination; many are folded."""
    found = [escape(text) for texts in combinations(claim) for text in texts]
    lead = f'<span class="soft">{escape(decides(claim))}</span><br>' if decides(claim) else ""
    if len(found) <= FOLDED:
        return lead + "<br>".join(found)
    more = [f"and {len(found) - MAX_COMBINATIONS} more, in claims.parquet"] if len(found) > MAX_COMBINATIONS else []
    shown = "<br>".join(found[:MAX_COMBINATIONS] + more)
    return f"{lead}<details><summary>each of {len(found)}</summary>{shown}</details>"


# --- exhibits -------------------------------------------------------------------------------------

STATUS = {"made": "", "partly": "in part", ABSENT: "missing"}


def papers_section(folders: Sequence[Path], base_folder: Path) -> Section:
    """Return all papers' exhibits, from the folders that `papers.make` wrote; links are relative to `base_folder`.

    Pictures are in the page itself, files behind links.
    """
    text = "\n".join(_paper(folder, base_folder) for folder in folders) or paragraph("No paper's exhibit was made.")
    return Section("papers", "Figures and tables of the papers", text)


def _paper(folder: Path, base_folder: Path) -> str:
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    entries: list[Entry] = index["exhibits"]
    made = sum(entry["status"] != ABSENT for entry in entries)
    head = f"<h3>{escape(index['authors'])}: {made} of {len(entries)} exhibits from this study</h3>"
    return "\n".join([head, *(_exhibit(entry, folder, base_folder) for entry in entries)])


def _exhibit(entry: Entry, folder: Path, base_folder: Path) -> str:
    """Return a fold for each exhibit: closed, with its state in the line that opens it."""
    status = STATUS[entry["status"]]
    line = f"{escape(entry['number'])}: {escape(entry['title'])}" + (f" <em>({status})</em>" if status else "")
    items = "".join(f"<li>{escape(note)}</li>" for note in notes(entry))
    return (
        f'<details class="exhibit" id="{folder.name}-{entry["name"]}"><summary>{line}</summary>'
        f"{_content(entry, folder)}<ul>{items}</ul>{_links(entry['files'], folder, base_folder)}</details>"
    )


def _content(entry: Entry, folder: Path) -> str:
    if entry["status"] == ABSENT:
        return ""
    if entry["kind"] == "table":
        made = entry["table"]
        file = f"{folder.name}/{entry['name']}.csv"
        return table(made["head"], made["rows"], file=file) + "".join(map(paragraph, made["notes"]))
    picture = base64.b64encode((folder / f"{entry['name']}.svg").read_bytes()).decode()
    alternative = escape(f"{entry['number']}: {entry['title']}", quote=True)
    style = "max-width: 100%; height: auto; background: white"
    return f'<p><img alt="{alternative}" style="{style}" src="data:image/svg+xml;base64,{picture}"></p>'


def _links(files: Sequence[str], folder: Path, base_folder: Path) -> str:
    base = folder.relative_to(base_folder).as_posix()
    links = ", ".join(f'<a href="{base}/{file}">{file}</a>' for file in files)
    return f"<p>Files: {links}</p>" if links else ""

"""Section of the papers' exhibits: pictures and tables, differences from the originals, reasons for missing ones."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from html import escape
from pathlib import Path

from stallpoint.report.html import PagePart, paragraph, table
from stallpoint_papers.make import ABSENT, INDEX, Entry, notes

STATUS = {"made": "", "partly": "in part", ABSENT: "missing"}


def papers_section(folders: Sequence[Path], base_folder: Path) -> PagePart:
    """Return all papers' exhibits, from the folders that `papers.make` wrote; links are relative to `base_folder`.

    Pictures are in the page itself, files behind links.
    """
    text = "\n".join(_paper(folder, base_folder) for folder in folders) or paragraph("No paper's exhibit was made.")
    return PagePart("papers", "Figures and tables of the papers", "Papers", text)


def _paper(folder: Path, base_folder: Path) -> str:
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    entries: list[Entry] = index["exhibits"]
    made = sum(entry["status"] != ABSENT for entry in entries)
    head = f"<h3>{escape(index['authors'])}: {made} of {len(entries)} exhibits from this study</h3>"
    return "\n".join([head, *(_exhibit(entry, folder, base_folder) for entry in entries)])


def _exhibit(entry: Entry, folder: Path, base_folder: Path) -> str:
    """Return an exhibit as a closed fold, with its status in the summary line."""
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

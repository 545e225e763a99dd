"""Exhibits of a paper as files, with an index: what each shows, how it differs from the original and what is missing.

Figures become ``fig-03.html``, ``.svg``, ``.pdf``, ``.png`` and ``.json``, tables ``table-1.csv``, ``.tex`` and
``.md``. An exhibit for which the study has no data has no file: the index names the cells that would give it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from stallpoint.records.atomic import atomic
from stallpoint.report import typeset
from stallpoint.report.charts import NoData
from stallpoint.report.charts.render import FORMATS, to_spec, write
from stallpoint.report.typeset import Typeset
from stallpoint.text import quote
from stallpoint_papers.exhibits import Exhibit, Material, Missing, Paper
from stallpoint_papers.exhibits.study_material import statements

INDEX = "index.json"
COMPLETE, PARTLY, ABSENT = "made", "partly", "missing"
Entry: TypeAlias = dict[str, Any]
"""Entry of the index for an exhibit; as JSON."""


def published(files: Iterable[Path]) -> dict[str, Any]:
    """Return the contents of files of ``resources/published`` by stem: YAML as data, others as text."""
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    return {file.stem: yaml.safe_load(text) if file.suffix == ".yaml" else text for file, text in texts.items()}


def make(paper: Paper, material: Material, folder: Path) -> None:
    """Write every exhibit of `paper`, ``index.json`` and ``index.md`` to `folder`, atomically."""
    material = material.renamed(paper.networks)
    with atomic(folder) as scratch:
        scratch.mkdir()
        entries = [_entry(paper, exhibit, material, scratch) for exhibit in paper.exhibits]
        index = {"paper": paper.name, "authors": paper.authors, "exhibits": entries}
        (scratch / INDEX).write_text(json.dumps(index, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        (scratch / "index.md").write_text(_markdown(paper, entries), encoding="utf-8")


def _entry(paper: Paper, exhibit: Exhibit, material: Material, folder: Path) -> Entry:
    texts = statements(material, paper.statements_file, exhibit.name)
    entry: Entry = {
        "number": exhibit.number, "name": exhibit.name, "kind": exhibit.kind, "title": exhibit.title,
        "differs": exhibit.differs, "published": [{key: one[key] for key in ("says", "source")} for one in texts],
        "status": ABSENT, "missing": [], "shown": "", "files": [],
    }  # fmt: skip
    try:
        made = exhibit.make(material)
    except (Missing, NoData) as reason:
        return entry | {"missing": [str(reason)]}
    missing = list(made.missing)
    if isinstance(made.content, Typeset):
        frame = made.content.frame
        missing += [f"no value in column {name}" for name in frame if (frame[name].isna() | frame[name].eq("")).all()]
        formats: Sequence[str] = typeset.FORMATS
        typeset.write(made.content, _files(folder, exhibit, formats))
        head, rows, caption = typeset.printed(made.content)
        entry["table"] = {"caption": caption, "head": head, "rows": rows, "notes": list(made.content.notes)}
    else:
        formats = FORMATS
        title = f"{exhibit.title} (after {paper.authors}, {exhibit.number})"
        write(to_spec(made.content), title, _files(folder, exhibit, formats))
    return entry | {
        "status": PARTLY if missing else COMPLETE, "missing": missing, "shown": made.shown,
        "files": [f"{exhibit.name}.{name}" for name in formats],
    }  # fmt: skip


def _files(folder: Path, exhibit: Exhibit, formats: Sequence[str]) -> Mapping[str, Path]:
    return {name: folder / f"{exhibit.name}.{name}" for name in formats}


def notes(entry: Entry) -> Iterator[str]:
    """Yield notes on an exhibit: missing data, the part shown, differences to the original, statements of the paper."""
    if entry["missing"]:
        yield f"Missing: {'; '.join(entry['missing'])}"
    if entry["shown"]:
        yield f"Shown: {entry['shown']}"
    if entry["files"]:
        yield f"Differs from the original: {entry['differs']}"
    yield from (f"Published: {one['says']} ({one['source']})" for one in entry["published"])


def _markdown(paper: Paper, entries: Sequence[Entry]) -> str:
    lines = [f"# {paper.authors}: figures and tables from this study", ""]
    for entry in entries:
        lines += [f"## {entry['number']}: {entry['title']}", ""]
        if entry["kind"] == "figure" and entry["files"]:
            lines += [f"![{entry['title']}]({entry['name']}.svg)", ""]
        links = ", ".join(f"[{file}]({file})" for file in entry["files"])
        files = [f"Files: {links}"] if links else []
        lines += [*(f"- {note}" for note in (*files, *map(quote, notes(entry)))), ""]
    return "\n".join(lines).rstrip("\n") + "\n"

"""Archive of a study whose results are complete, without names that it is to leave out."""

from __future__ import annotations

import base64
import gzip
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import stallpoint
from stallpoint.archive.anonymising import without_names
from stallpoint.archive.archive_contents import WORKFLOW, names_in, stage
from stallpoint.archive.crate import files_in, pack, run_of, title, write_checksums, write_citation, write_metadata
from stallpoint.archive.index import read_index
from stallpoint.archive.names import expand_nodes
from stallpoint.records.atomic import scratch_prefix
from stallpoint.records.parquet import to_arrow, write
from stallpoint.records.tables import ACCOUNTING
from stallpoint.study.study import Study
from stallpoint.text import plain

_TEXT = Template(
    """# $title

What the study `$study` measured, what follows from it, and the workflow that draws it again from the records. Made by
`snakemake archive` of stallpoint $version.

| where | what |
| --- | --- |
| `results/$study/report.html` | the report: open it in a browser |
| `results/$study/conclusions.md`, `conclusions.json` | conclusions: on one page, as data |
| `results/$study/slides/` | the answers as slides |
| `results/$study/raw/` | the records as measured: a folder for each cell, Parquet with units in the metadata |
| `results/$study/tables/`, `models/`, `figures/` | the records of all cells together, fitted models, figures |
| `results/$study/tables/environments.parquet` | machine and software of each rank |
| `results/$study/tables/slurm_jobs.parquet`, `results/$study/accounting.parquet` | Slurm's jobs, if there were any |
| `config/config.yaml` | the study |
| `requirements.lock` | versions of what was installed |
| `archive.json` | the cells, and where their records are |
| `ro-crate-metadata.json` | all of this for programs (RO-Crate, Workflow Run Crate) |

Check that it is whole: `sha256sum --check --quiet checksums.sha256`

Draw everything again from the records, measuring nothing (Python 3.11 or newer):

```
make setup
.venv/bin/snakemake --forceall
```

This runs the archive's own programs: do it only if you trust whoever gave it to you. Checksums do not say who made the
archive, and no record says whether its times were measured: times that are all halved look like a faster machine.

Compare it with results of another cluster: `stallpoint compare THIS.zip OTHER.zip`

Results: licence $licence. The workflow: see `LICENSE`. To cite: `CITATION.cff`. $names
"""
)
NAMES_EXCLUDED = "Names of users and nodes and absolute paths were removed."
NAMES_KEPT = "Names of users and nodes are those of the machines."


def write_guide(folder: Path, **facts: str) -> None:
    """Write ``README.md`` to `folder`; `facts` are title, study, version, licence and names."""
    (folder / "README.md").write_text(_TEXT.substitute({**facts, "title": plain(facts["title"])}), encoding="utf-8")


def make_archive(
    study: Study,
    target: Path,
    *,
    workflow: Path,
    users: Iterable[str],
    accounts: Sequence[Mapping[str, Any]],
    drawn: Sequence[str],
    draw: Callable[[Path], None],
) -> dict[str, list[str]]:
    """Write the zip `target`; return names that should have been replaced and are still in some files (file ->
    words).

    Run from the folder with the results. `workflow` is where the workflow is, `users` are names to be removed,
    `accounts` rows of `tables.ACCOUNTING`. `drawn` are the results that hold names: `draw` is called with the folder
    in which they are to be drawn again.
    """
    about = study.config["archive"]
    nodes = (node for row in accounts for node in expand_nodes(row["node_list"]))
    names = None if about["keep_names"] else names_in(study, users, Path.cwd(), nodes)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=scratch_prefix(study.name), dir=target.parent) as scratch:
        folder = Path(scratch, study.name)
        folder.mkdir()
        stage(study, workflow, folder, names, drawn=drawn if names else ())
        if names:
            draw(folder)
        if accounts:
            rows = to_arrow(ACCOUNTING, accounts)
            rows = without_names(rows, ACCOUNTING.name, names) if names else rows
            write(ACCOUNTING, rows, folder / "results" / study.name / f"{ACCOUNTING.name}.parquet")
        _describe(folder, study, "" if names is None else NAMES_EXCLUDED)
        pack(folder, target, [f"results/{study.name}/raw/"])
        return find(names.words - _given(study), folder, _about_the_study(folder)) if names else {}


def _describe(folder: Path, study: Study, names: str) -> None:
    """Write the descriptions of the archive: citation, guide, crate and checksums."""
    about = study.config["archive"]
    run = run_of(folder, read_index(folder).cells)
    write_citation(folder, study.name, about, run.ended)
    write_guide(
        folder,
        title=title(study.name, about),
        study=study.name,
        version=stallpoint.__version__,
        licence=about["licence"],
        names=names or NAMES_KEPT,
    )
    write_metadata(folder, study, run)
    write_checksums(folder)


def _given(study: Study) -> set[str]:
    """Return names that the author gave to parts of the study: they stay, even if something else has the same name."""
    sections = ("hardware", "storage", "networks", "presets", "external_tables")
    return {study.name, *study.available, *(name for section in sections for name in study.config[section])}


def _about_the_study(folder: Path) -> list[str]:
    """Return the files that are not the workflow's own."""
    own = tuple(f"{part}/" if (folder / part).is_dir() else part for part in WORKFLOW)
    return [name for name in files_in(folder) if not name.startswith(own)]


_PACKED = re.compile(r'<script type="application/gzip"[^>]*>([A-Za-z0-9+/=]*)</script>')
_PROGRAM = re.compile(r"<(script|style)\b[^>]*>.*?</\1>", re.DOTALL)
_CLASS = re.compile(r'\sclass="[^"]*"')
_TEXTS = (".json", ".yaml", ".md", ".cff", ".csv", ".tex", ".txt")


def texts(file: Path) -> Iterator[str]:
    """Return the file's texts, unpacked; not the programs and styles inside a page or drawing."""
    if file.suffix == ".parquet":
        yield from _values(file)
    elif file.suffix == ".html":
        page = file.read_text(encoding="utf-8")
        yield _PROGRAM.sub("", page)
        for packed in _PACKED.findall(page):
            yield gzip.decompress(base64.b64decode(packed)).decode()
    elif file.suffix == ".svg":
        yield _CLASS.sub("", file.read_text(encoding="utf-8"))
    elif file.suffix in _TEXTS:
        yield file.read_text(encoding="utf-8")


def _values(file: Path) -> Iterator[str]:
    """Return every distinct text in the table, and its metadata."""
    table = pq.read_table(file)
    yield str(table.schema.metadata)
    for column in table.columns:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            yield from filter(None, column.unique().to_pylist())


def find(words: Iterable[str], folder: Path, files: Iterable[str]) -> dict[str, list[str]]:
    """Return the files below `folder` that contain any of the words, as whole words; file -> words."""
    patterns = {word: re.compile(rf"(?<![A-Za-z0-9_]){re.escape(word)}(?![A-Za-z0-9_])") for word in sorted(words)}
    found: dict[str, list[str]] = {}
    for name in files:
        contents = list(texts(folder / name))
        if hits := [word for word, pattern in patterns.items() if any(map(pattern.search, contents))]:
            found[name] = hits
    return found

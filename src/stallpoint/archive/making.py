"""Make an archive, without private names, of a study with complete results.

The archive is a folder in which `snakemake` redraws the results from the records.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

import stallpoint
from stallpoint.archive.anonymising import (
    Names,
    cell_without_names,
    config_without_names,
    copy_records,
    expand_nodes,
    without_names,
)
from stallpoint.archive.crate import files_in, pack, run_of, title, write_checksums, write_citation, write_metadata
from stallpoint.archive.index import INDEX, Index, read_index
from stallpoint.networks.own import file_of
from stallpoint.records.atomic import scratch_prefix
from stallpoint.records.parquet import read, to_arrow, write
from stallpoint.records.tables import ACCOUNTING, ENVIRONMENTS, SLURM_JOBS
from stallpoint.study.cells import Cell
from stallpoint.study.configuration import is_file
from stallpoint.study.study import Study
from stallpoint.text import quote

_GUIDE = Template(
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
    (folder / "README.md").write_text(_GUIDE.substitute({**facts, "title": quote(facts["title"])}), encoding="utf-8")


def make_archive(
    study: Study,
    target: Path,
    *,
    workflow: Path,
    users: Iterable[str],
    accounts: Sequence[Mapping[str, Any]],
    drawn_files: Sequence[str],
    draw_results: Callable[[Path], None],
) -> dict[str, list[str]]:
    """Write the zip `target`; return the private names that files still contain: file -> names.

    Results are read below the working directory, the workflow below `workflow`. `users` are names to remove, `accounts`
    rows of `tables.ACCOUNTING`. `drawn_files` are paths of results that contain private names: they are not copied,
    but `draw_results` draws them again in the folder that it is passed.
    """
    about = study.config["archive"]
    nodes = (node for row in accounts for node in expand_nodes(row["node_list"]))
    names = None if about["keep_names"] else names_in(study, users, Path.cwd(), nodes)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=scratch_prefix(study.name), dir=target.parent) as scratch:
        folder = Path(scratch, study.name)
        folder.mkdir()
        stage(study, workflow, folder, names, drawn_files=drawn_files if names else ())
        if names:
            draw_results(folder)
        if accounts:
            rows = to_arrow(ACCOUNTING, accounts)
            rows = without_names(rows, ACCOUNTING.name, names) if names else rows
            write(ACCOUNTING, rows, folder / "results" / study.name / f"{ACCOUNTING.name}.parquet")
        _describe(folder, study, "" if names is None else NAMES_EXCLUDED)
        pack(folder, target, [f"results/{study.name}/raw/"])
        return find_words(names.words - _kept_names(study), folder, _study_files(folder)) if names else {}


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


def _kept_names(study: Study) -> set[str]:
    """Return the names that the author chose for parts of the study. They stay, even if a node or user is called so."""
    sections = ("hardware", "storage", "networks", "presets", "external_tables")
    return {study.name, *study.available, *(name for section in sections for name in study.config[section])}


def _study_files(folder: Path) -> list[str]:
    """Return the files of an archive, except those of the workflow."""
    workflow_files = tuple(f"{part}/" if (folder / part).is_dir() else part for part in WORKFLOW)
    return [name for name in files_in(folder) if not name.startswith(workflow_files)]


_PACKED_SCRIPT = re.compile(r'<script type="application/gzip" id="(?!libraries")[^>]*>([A-Za-z0-9+/=]*)</script>')
_PROGRAM = re.compile(r"<(script|style)\b[^>]*>.*?</\1>", re.DOTALL)
_CLASS_ATTRIBUTE = re.compile(r'\sclass="[^"]*"')
_TEXT_SUFFIXES = (".json", ".yaml", ".md", ".cff", ".csv", ".tex", ".txt")


def texts(file: Path) -> Iterator[str]:
    """Yield the decompressed texts of a file, without scripts and styles."""
    if file.suffix == ".parquet":
        yield from _values(file)
    elif file.suffix == ".html":
        page = file.read_text(encoding="utf-8")
        yield _PROGRAM.sub("", page)
        for packed in _PACKED_SCRIPT.findall(page):
            yield gzip.decompress(base64.b64decode(packed)).decode()
    elif file.suffix == ".svg":
        yield _CLASS_ATTRIBUTE.sub("", file.read_text(encoding="utf-8"))
    elif file.suffix in _TEXT_SUFFIXES:
        yield file.read_text(encoding="utf-8")


def _values(file: Path) -> Iterator[str]:
    """Yield the metadata of a Parquet file, then every distinct text in its columns."""
    table = pq.read_table(file)
    yield str(table.schema.metadata)
    for column in table.columns:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            yield from filter(None, column.unique().to_pylist())


def find_words(words: Iterable[str], folder: Path, files: Iterable[str]) -> dict[str, list[str]]:
    """Return the `words` that each of the `files` below `folder` contains as complete words: file -> words."""
    patterns = {word: re.compile(rf"(?<![A-Za-z0-9_]){re.escape(word)}(?![A-Za-z0-9_])") for word in sorted(words)}
    found: dict[str, list[str]] = {}
    for name in files:
        contents = list(texts(folder / name))
        # A search by `in` comes first: it is 20 times as fast as a regular expression, and rarely finds anything.
        if hits := [
            word for word, regex in patterns.items() if any(word in text and regex.search(text) for text in contents)
        ]:
            found[name] = hits
    return found


# --- contents of the archive ----------------------------------------------------------------------

WORKFLOW = (
    "Snakefile", "workflow", "scripts", "src/stallpoint", "resources", "profiles/default", "pyproject.toml",
    "requirements.lock", "Makefile", "LICENSE",
)  # fmt: skip
"""Files of the workflow itself, without the site's profile."""
CONFIG = "config/config.yaml"
_NAMES_NOT_COPIED = ("raw", "visits", "schedule", "interrupted", "traces")
"""Folders of the results that are not copied as they are: records, their inputs, exports."""
_NOTE = "# The study as it was archived, with every default filled in. With archived: true nothing is measured again.\n"


def names_in(study: Study, users: Iterable[str], root: Path, other_names: Iterable[str] = ()) -> Names:
    """Return placeholders for `users`, for recorded nodes, and for `other_names`, which are further nodes."""
    nodes = set(other_names)
    for folder, _ in cell_records(study):
        if (file := folder / f"{ENVIRONMENTS.name}.parquet").exists():
            nodes |= set(read(ENVIRONMENTS, file)["node"].to_pylist())
        if (file := folder / f"{SLURM_JOBS.name}.parquet").exists():
            nodes |= {node for row in read(SLURM_JOBS, file).to_pylist() for node in expand_nodes(row["node_list"])}
    return Names(nodes, users, str(root))


def cell_records(study: Study) -> Iterator[tuple[Path, Cell]]:
    """Yield the folder of records of each cell, and the cell."""
    return ((Path("results", study.name, "raw", path), cell) for path, cell in study.cells.items())


def stage(study: Study, workflow: Path, folder: Path, names: Names | None, *, drawn_files: Iterable[str] = ()) -> None:
    """Write workflow, configuration, records, results and index below `folder`; `names` replaces private names in them.

    `workflow` is the folder of the workflow's files. Results in `drawn_files` are not copied, as they contain private
    names.
    """
    for part in WORKFLOW:
        _copy_files(workflow / part, folder / part)
    config = _archive_config(study, names, folder)
    (folder / CONFIG).parent.mkdir(parents=True)
    (folder / CONFIG).write_text(_NOTE + yaml.safe_dump(config, sort_keys=False, allow_unicode=True), encoding="utf-8")
    skipped_files = set(drawn_files)
    for entry in sorted(Path("results", study.name).iterdir()):
        if entry.name not in _NAMES_NOT_COPIED and not entry.name.startswith("."):
            _copy_files(entry, folder / entry, skipped_files)
    cells = {}
    for source, cell in cell_records(study):
        copy_records(source, folder / source, names)
        cells[str(source)] = cell_without_names(cell, names) if names else cell
    (folder / INDEX).write_text(_index(study, cells).to_json(), encoding="utf-8")


def _copy_files(source: Path, target: Path, skipped_files: Iterable[str] = ()) -> None:
    """Copy a file or folder, without hidden files, compiled code and the files `skipped_files`."""
    files = [source] if source.is_file() else sorted(source.rglob("*"))
    for file in files:
        parts = file.relative_to(source).parts
        is_hidden = any(part.startswith(".") or part in ("__pycache__",) for part in parts)
        if file.is_file() and not is_hidden and str(file) not in skipped_files:
            copied_file = target.joinpath(*parts)
            copied_file.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copied_file)


def _archive_config(study: Study, names: Names | None, folder: Path) -> dict[str, Any]:
    """Copy the files that the configuration names to `folder`; return the configuration with their new paths."""
    placeholders = names or Names(root=str(Path.cwd()))
    config = {**config_without_names(study.config, placeholders), "archived": True}
    if names is None:
        config |= {section: study.config[section] for section in ("storage", "hardware")}
    networks = [file_of(entry) for entry in study.config["networks"].values()]
    claims = filter(is_file, study.config["claims"])
    for file in filter(None, [*networks, *map(Path, [*study.config["external_tables"].values(), *claims])]):
        _copy_files(file, folder / placeholders.path(str(file)))
    return config


def _index(study: Study, cells: Mapping[str, Cell]) -> Index:
    settings = [json.loads(cell.to_json()) for cell in cells.values()]
    networks = sorted(Path("results", study.name, "networks").glob("*.parquet"))
    return Index(
        study=study.name,
        hardware=study.available,
        presets=study.config["presets"],
        shared_links=tuple(study.shared_links),
        own_networks={one["network"]: one["own_network"] for one in settings if one.get("own_network")},
        networks={file.stem: str(file) for file in networks},
        cells=cells,
    )

"""Making an archive of a study whose results are complete."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import stallpoint
from stallpoint.archive import citation, guide
from stallpoint.archive.archive_contents import WORKFLOW, names_in, stage
from stallpoint.archive.crate import run_of, write_metadata
from stallpoint.archive.index import read_index
from stallpoint.archive.leaving_out import without_names
from stallpoint.archive.names import Names, expand_nodes
from stallpoint.archive.packing import files_in, pack, write_checksums
from stallpoint.archive.search import find
from stallpoint.records.parquet import to_arrow, write
from stallpoint.records.tables import ACCOUNTING
from stallpoint.study.study import Study


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
    """Write the zip `target`; returns words that were to be left out and are still in some files (file -> words).

    Run from the folder with the results. `workflow` is where the workflow is, `users` are names to be left out,
    `accounts` rows of `tables.ACCOUNTING`. `drawn` are the results that hold names: `draw` is called with the folder
    in which they are to be drawn again.
    """
    about = study.config["archive"]
    nodes = (node for row in accounts for node in expand_nodes(row["node_list"]))
    names = None if about["keep_names"] else names_in(study, users, Path.cwd(), nodes)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{study.name}.", dir=target.parent) as scratch:
        folder = Path(scratch, study.name)
        folder.mkdir()
        stage(study, workflow, folder, names, drawn=drawn if names else ())
        if names:
            draw(folder)
        _write_accounts(accounts, names, folder / "results" / study.name / f"{ACCOUNTING.name}.parquet")
        _describe(folder, study, "" if names is None else guide.LEFT_OUT)
        pack(folder, target, [f"results/{study.name}/raw/"])
        return find(names.words - _given(study), folder, _about_the_study(folder)) if names else {}


def _describe(folder: Path, study: Study, names: str) -> None:
    """Write what tells about the archive: citation, guide, crate and checksums."""
    about = study.config["archive"]
    run = run_of(folder, read_index(folder).cells)
    citation.write_citation(folder, study.name, about, run.ended)
    guide.write_guide(
        folder,
        title=citation.title(study.name, about),
        study=study.name,
        version=stallpoint.__version__,
        licence=about["licence"],
        names=names or guide.KEPT,
    )
    write_metadata(folder, study, run)
    write_checksums(folder)


def _write_accounts(accounts: Sequence[Mapping[str, Any]], names: Names | None, file: Path) -> None:
    if accounts:
        rows = to_arrow(ACCOUNTING, accounts)
        write(ACCOUNTING, without_names(rows, ACCOUNTING.name, names) if names else rows, file)


def _given(study: Study) -> set[str]:
    """Names that the author gave to parts of the study: they stay, whatever else is called so."""
    sections = ("hardware", "storage", "networks", "presets", "external_tables")
    return {study.name, *study.available, *(name for section in sections for name in study.config[section])}


def _about_the_study(folder: Path) -> list[str]:
    """The files that are not the workflow's own."""
    own = tuple(f"{part}/" if (folder / part).is_dir() else part for part in WORKFLOW)
    return [name for name in files_in(folder) if not name.startswith(own)]

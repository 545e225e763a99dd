"""What goes into an archive: a folder in which `snakemake` draws the results again from the records."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from stallpoint.archive.index import INDEX, Index, read_index
from stallpoint.archive.leaving_out import cell_without_names, config_without_names, copy_records
from stallpoint.archive.names import Names, expand_nodes
from stallpoint.networks.own import file_of
from stallpoint.records.parquet import read
from stallpoint.records.tables import ENVIRONMENTS, SLURM_JOBS
from stallpoint.study.cells import Cell
from stallpoint.study.paths import is_file
from stallpoint.study.study import Study

WORKFLOW = (
    "Snakefile", "workflow", "scripts", "src/stallpoint", "resources", "profiles/default", "pyproject.toml",
    "requirements.lock", "Makefile", "LICENSE",
)  # fmt: skip
"""The workflow itself; what is about a site (its profile) stays there."""
CONFIG = "config/config.yaml"
_APART = ("raw", "archives", "visits", "turns", "interrupted", "traces")
"""Folders of the results that are not copied as they are: records, what they were made of, files for others."""
_HEAD = "# The study as it was archived, with every default filled in. With archived: true nothing is measured again.\n"


def names_in(study: Study, users: Iterable[str], root: Path, others: Iterable[str] = ()) -> Names:
    """The names to be left out: nodes of the study's records and `others`, and `users`; paths start at `root`."""
    nodes = set(others)
    for folder, _ in recorded(study):
        if (file := folder / f"{ENVIRONMENTS.name}.parquet").exists():
            nodes |= set(read(ENVIRONMENTS, file)["node"].to_pylist())
        if (file := folder / f"{SLURM_JOBS.name}.parquet").exists():
            nodes |= {node for row in read(SLURM_JOBS, file).to_pylist() for node in expand_nodes(row["node_list"])}
    return Names(nodes, users, str(root))


def recorded(study: Study) -> Iterator[tuple[Path, Cell]]:
    """The folder with the records of each cell, the study's own and those of its archives."""
    results = Path("results", study.name)
    for path, cell in study.cells.items():
        yield results / "raw" / path, cell
    for archive in study.archives:
        for folder, cell in archive.cells.items():
            yield results / "archives" / archive.name / folder, cell


def stage(study: Study, workflow: Path, folder: Path, names: Names | None, *, drawn: Iterable[str] = ()) -> None:
    """Write workflow, configuration, records, results and index below `folder`.

    `workflow` is where the workflow's own files are; with `names`, these are left out. `drawn` names results that hold
    names: they are not copied, but have to be drawn again from the records in the new folder.
    """
    for part in WORKFLOW:
        _copy(workflow / part, folder / part)
    config = _archived(study, names, folder)
    (folder / CONFIG).parent.mkdir(parents=True)
    (folder / CONFIG).write_text(_HEAD + yaml.safe_dump(config, sort_keys=False, allow_unicode=True), encoding="utf-8")
    left = set(drawn)
    for entry in sorted(Path("results", study.name).iterdir()):
        if entry.name not in _APART:
            _copy(entry, folder / entry, left)
    cells = {}
    for source, cell in recorded(study):
        copy_records(source, folder / source, names)
        cells[str(source)] = cell_without_names(cell, names) if names else cell
    (folder / INDEX).write_text(_index(study, cells).to_json(), encoding="utf-8")
    _copy_indices(study, cells, folder)


def _copy(source: Path, target: Path, left: Iterable[str] = ()) -> None:
    """Copy a file, or a folder with all it holds but hidden files, compiled code and those named in `left`."""
    files = [source] if source.is_file() else sorted(source.rglob("*"))
    for file in files:
        inside = file.relative_to(source).parts
        hidden = any(part.startswith(".") or part in ("__pycache__",) for part in inside)
        if file.is_file() and not hidden and str(file) not in left:
            place = target.joinpath(*inside)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)


def _archived(study: Study, names: Names | None, folder: Path) -> dict[str, Any]:
    """The configuration to be archived; the files that it needs are copied to where it then says they are."""
    places = names or Names(root=str(Path.cwd()))
    config = {**config_without_names(study.config, places), "archived": True}
    if names is None:
        config |= {section: study.config[section] for section in ("storage", "hardware")}
    config["archives"] = [{"path": archive.path.name, "name": archive.name} for archive in study.archives]
    networks = [file_of(entry) for entry in study.config["networks"].values()]
    claims = filter(is_file, study.config["claims"])
    for file in filter(None, [*networks, *map(Path, [*study.config["external_tables"].values(), *claims])]):
        _copy(file, folder / places.path(str(file)))
    return config


def _index(study: Study, cells: Mapping[str, Cell]) -> Index:
    networks: dict[str, str] = {}
    results = Path("results", study.name)
    for folder in (*(results / "archives" / archive.name for archive in study.archives), results):
        networks |= {file.stem: str(file) for file in sorted((folder / "networks").glob("*.parquet"))}
    return Index(
        study=study.name,
        hardware=study.available,
        presets=study.presets,
        shared_links=tuple(study.shared_links),
        own_networks=study.own_networks,
        networks=networks,
        cells=cells,
    )


def _copy_indices(study: Study, cells: Mapping[str, Cell], folder: Path) -> None:
    """The index and the networks of each archive that is part of the study."""
    for archive in study.archives:
        source = Path("results", study.name, "archives", archive.name)
        _copy(source / "networks", folder / source / "networks")
        own = {place: cells[str(source / place)] for place in archive.cells}
        text = replace(read_index(source), cells=own).to_json()
        (folder / source / INDEX).write_text(text, encoding="utf-8")

"""Contents of an archive: a folder in which `snakemake` redraws the results from the records."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from stallpoint.archive.anonymising import cell_without_names, config_without_names, copy_records
from stallpoint.archive.index import INDEX, Index
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
"""Files of the workflow itself, without the site's profile."""
CONFIG = "config/config.yaml"
_APART = ("raw", "visits", "schedule", "interrupted", "traces")
"""Folders of the results that are not copied unchanged: records, their inputs, exports."""
_HEAD = "# The study as it was archived, with every default filled in. With archived: true nothing is measured again.\n"


def names_in(study: Study, users: Iterable[str], root: Path, others: Iterable[str] = ()) -> Names:
    """Return the names to anonymise: nodes of the study's records and `others`, and `users`; paths start at `root`."""
    nodes = set(others)
    for folder, _ in recorded(study):
        if (file := folder / f"{ENVIRONMENTS.name}.parquet").exists():
            nodes |= set(read(ENVIRONMENTS, file)["node"].to_pylist())
        if (file := folder / f"{SLURM_JOBS.name}.parquet").exists():
            nodes |= {node for row in read(SLURM_JOBS, file).to_pylist() for node in expand_nodes(row["node_list"])}
    return Names(nodes, users, str(root))


def recorded(study: Study) -> Iterator[tuple[Path, Cell]]:
    """Return the folder with the records of each cell."""
    return ((Path("results", study.name, "raw", path), cell) for path, cell in study.cells.items())


def stage(study: Study, workflow: Path, folder: Path, names: Names | None, *, drawn: Iterable[str] = ()) -> None:
    """Write workflow, configuration, records, results and index below `folder`.

    `workflow` has the workflow's own files; `names` are replaced. Results that hold names, `drawn`, are not copied, but
    redrawn from the records in the new folder.
    """
    for part in WORKFLOW:
        _copy(workflow / part, folder / part)
    config = _archived(study, names, folder)
    (folder / CONFIG).parent.mkdir(parents=True)
    (folder / CONFIG).write_text(_HEAD + yaml.safe_dump(config, sort_keys=False, allow_unicode=True), encoding="utf-8")
    skipped = set(drawn)
    for entry in sorted(Path("results", study.name).iterdir()):
        if entry.name not in _APART and not entry.name.startswith("."):
            _copy(entry, folder / entry, skipped)
    cells = {}
    for source, cell in recorded(study):
        copy_records(source, folder / source, names)
        cells[str(source)] = cell_without_names(cell, names) if names else cell
    (folder / INDEX).write_text(_index(study, cells).to_json(), encoding="utf-8")


def _copy(source: Path, target: Path, skipped: Iterable[str] = ()) -> None:
    """Copy a file, or a folder without hidden files, compiled code and those named in `skipped`."""
    files = [source] if source.is_file() else sorted(source.rglob("*"))
    for file in files:
        inside = file.relative_to(source).parts
        hidden = any(part.startswith(".") or part in ("__pycache__",) for part in inside)
        if file.is_file() and not hidden and str(file) not in skipped:
            copied = target.joinpath(*inside)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copied)


def _archived(study: Study, names: Names | None, folder: Path) -> dict[str, Any]:
    """Return the configuration to be archived; its files are copied to where it then points."""
    places = names or Names(root=str(Path.cwd()))
    config = {**config_without_names(study.config, places), "archived": True}
    if names is None:
        config |= {section: study.config[section] for section in ("storage", "hardware")}
    networks = [file_of(entry) for entry in study.config["networks"].values()]
    claims = filter(is_file, study.config["claims"])
    for file in filter(None, [*networks, *map(Path, [*study.config["external_tables"].values(), *claims])]):
        _copy(file, folder / places.path(str(file)))
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

"""Input and output files of a comparison. This module imports quickly, as Snakemake needs it to plan."""

from __future__ import annotations

from pathlib import Path

from stallpoint.archive.index import read_zip_index
from stallpoint.errors import InputError
from stallpoint.records.tables import DISTURBANCES, ENVIRONMENTS, ITERATIONS, LAYERS, RUNS, STALLING

FOLDERS = {
    **dict.fromkeys((RUNS, ENVIRONMENTS, ITERATIONS, LAYERS), "tables"),
    **dict.fromkeys((STALLING, DISTURBANCES), "models"),
}
"""Tables that are read, and their location in the folder of a study."""
ARCHIVE_SUFFIX = ".zip"
FORMATS = ("md", "json", "parquet", "html")
"""Formats of a comparison: ``comparison.md``, ..."""


def name_of(source: str) -> str:
    """Return the name of an archive or study: the archive's file or the study's folder."""
    return Path(source).name.removesuffix(ARCHIVE_SUFFIX)


def files_of(source: str, where: str) -> list[Path]:
    """Return the files that `read_results` reads. Raise `InputError`, which begins with `where`, if there are none."""
    if source.endswith(ARCHIVE_SUFFIX):
        read_zip_index(Path(source), where)
        return [Path(source)]
    folder = folder_of(source, where)
    files = [folder / kind / f"{table.name}.parquet" for table, kind in FOLDERS.items()]
    if missing := [str(file) for file in files if not file.exists()]:
        raise InputError(f"{where}: study {source} is not finished: it has no {missing[0]}; run `snakemake` for it")
    return files


def folder_of(source: str, where: str) -> Path:
    """Return the folder of a study, whose folder or name is `source`; raise `InputError` if there is no such study."""
    possible_folders = [Path(source), Path("results", source)]
    for folder in possible_folders:
        if (folder / "tables").is_dir():
            return folder
    raise InputError(
        f"{where}: there is no study {source}: name the zip that `snakemake archive` wrote, or a finished study "
        f"(neither {possible_folders[0]} nor {possible_folders[1]} holds tables)"
    )

"""Input and output files of a comparison. This module imports quickly, as Snakemake needs it to plan."""

from __future__ import annotations

from pathlib import Path

from stallpoint.archive.index import read_zip_index
from stallpoint.errors import InputError
from stallpoint.records.tables import DISTURBANCES, ENVIRONMENTS, ITERATIONS, LAYERS, RUNS, STALLING

FOLDER = {
    **dict.fromkeys((RUNS, ENVIRONMENTS, ITERATIONS, LAYERS), "tables"),
    **dict.fromkeys((STALLING, DISTURBANCES), "models"),
}
"""Tables that are read, and their location in the folder of a study."""
ARCHIVE = ".zip"
FORMATS = ("md", "json", "parquet", "html")
"""Formats of a comparison: ``comparison.md``, ..."""


def name_of(given: str) -> str:
    """Return the name of an archive or study: the archive's file or the study's folder."""
    return Path(given).name.removesuffix(ARCHIVE)


def files_of(given: str, where: str) -> list[Path]:
    """Return the files that `read_results` reads. Raise `InputError`, which begins with `where`, if there are none."""
    if given.endswith(ARCHIVE):
        read_zip_index(Path(given), where)
        return [Path(given)]
    folder = folder_of(given, where)
    files = [folder / kind / f"{table.name}.parquet" for table, kind in FOLDER.items()]
    if missing := [str(file) for file in files if not file.exists()]:
        raise InputError(f"{where}: study {given} is not finished: it has no {missing[0]}; run `snakemake` for it")
    return files


def folder_of(given: str, where: str) -> Path:
    """Return the folder of a study, whose folder or name is `given`; raise `InputError` if there is no such study."""
    places = [Path(given), Path("results", given)]
    for folder in places:
        if (folder / "tables").is_dir():
            return folder
    raise InputError(
        f"{where}: there is no study {given}: name the zip that `snakemake archive` wrote, or a finished study "
        f"(neither {places[0]} nor {places[1]} holds tables)"
    )

"""Which cells a run of the workflow measures: what is missing, what is forced, what is asked for alone.

Snakemake knows this from its graph of jobs, but only once all rules exist, and the rule of a job that measures many
cells needs them before. So it is taken from the same facts: files that are there, and the command line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stallpoint.networks.own import file_of
from stallpoint.records.parquet import read
from stallpoint.records.tables import RUNS
from stallpoint.schedule.ledger import Measurement, round_folder
from stallpoint.study.cells import Cell
from stallpoint.study.commands import files_of


@dataclass(frozen=True)
class Asked:
    """What the command line says."""

    targets: frozenset[str] = frozenset()
    forced: frozenset[str] = frozenset()
    """Rules and files."""
    everything: bool = False
    """All jobs are forced."""

    def again(self, kind: str, folder: str) -> bool:
        """Whether the cell of this kind with this folder of raw records is to be measured anew."""
        return self.everything or kind in self.forced or folder in self.forced

    def alone(self, results: str) -> frozenset[str] | None:
        """The cells' paths, where nothing but cells (their records or traces) is asked for; else None."""
        found = set()
        for target in self.targets:
            place = next(
                (place for place in (f"{results}/raw/", f"{results}/traces/") if target.startswith(place)), None
            )
            if place is None:
                return None
            found.add(target.removeprefix(place).rstrip("/"))
        return frozenset(found) or None


def has_failed(record: str) -> bool:
    """Whether the folder of raw records says that its cell could not run."""
    runs = Path(record, f"{RUNS.name}.parquet")
    return runs.exists() and "failed" in read(RUNS, runs)["status"].to_pylist()


def measured_with(config: Mapping[str, Any]) -> Callable[[Cell], str]:
    """Function from a cell to what else it is measured with, by the study's configuration (`ledger.round_folder`).

    That is the file of one of the study's own networks, the files that a command names, and how samples are generated
    that are not the user's own.
    """

    def contents(entry: Mapping[str, Any]) -> str:
        file = file_of(entry)
        return file.read_text() if file and file.exists() else ""

    def generated(entry: Mapping[str, Any]) -> str:
        shape = [entry.get(key) for key in ("generate", "sequence_length", "vocabulary")]
        later = [entry[key] for key in ("image_size",) if key in entry]  # where it is not said, nothing is stale
        return str(shape + later) if "generate" in entry else ""

    networks = {name: contents(entry) for name, entry in config["networks"].items()}
    for name, entry in config["commands"].items():
        digests = (hashlib.sha256(file.read_bytes()).hexdigest() for file in files_of(entry["run"]))
        networks[name] = " ".join(digests)
    data = {name: generated(entry) for name, entry in config["storage"].items()}
    return lambda cell: "".join(
        [networks.get(getattr(cell, "network", ""), ""), *(data.get(storage, "") for storage in cell.storages)]
    )


def measurement(cell: Cell, visits: Path, *, again: bool, also: str = "") -> Measurement:
    """The measurement of a cell that counts: the latest one, or the next one where it is to be measured `again`.

    `also` as in `ledger.round_folder`.
    """
    return Measurement(cell, round_folder(cell, visits / cell.path, again=again, also=also))


def block_of(cell: Cell) -> str:
    """Name of the cells that a cell takes turns with: those of its hardware entry, each repeat apart."""
    return cell.hardware if cell.repeat == 1 else f"{cell.hardware}.repeat{cell.repeat}"


def blocks(measurements: Iterable[Measurement], asked: Asked, results: str) -> dict[str, list[Measurement]]:
    """What is to be measured now, by name of the block."""
    alone = asked.alone(results)
    found: dict[str, list[Measurement]] = {}
    for one in measurements:
        wanted = alone is None or any(path == one.cell.path or path.startswith(f"{one.cell.path}/") for path in alone)
        if wanted and not one.done.exists():
            found.setdefault(block_of(one.cell), []).append(one)
    return found

"""The cells that a run of the workflow measures: cells without a record, forced cells, or only requested cells.

Snakemake finds these cells from its graph of jobs, but only once all rules exist. The rules of measuring jobs need the
cells earlier. They are therefore found here from the same facts: existing files, and the command line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stallpoint.networks.own import file_of
from stallpoint.records.parquet import read
from stallpoint.records.tables import RUNS
from stallpoint.schedule.ledger import Measurement, round_folder
from stallpoint.study.cells import Cell
from stallpoint.study.commands import files_of
from stallpoint.study.kinds import MEASURED
from stallpoint.study.kinds.convergence_kind import ConvergenceCell
from stallpoint.study.study import Study


@dataclass(frozen=True)
class RequestedTargets:
    """What Snakemake's command line requests: targets, and rules and files whose jobs it forces to run again."""

    targets: frozenset[str] = frozenset()
    forced: frozenset[str] = frozenset()
    """Forced rules and files."""
    whole_study: bool = False
    """Whether all jobs are forced."""

    def again(self, kind: str, folder: str) -> bool:
        """Return whether a cell, given by its `kind` and the `folder` of its raw records, is to be measured again."""
        return self.whole_study or kind in self.forced or folder in self.forced

    def only_cells(self, results: str) -> frozenset[str] | None:
        """Return the paths of the requested cells if every target is the record or trace of a cell; else None."""
        found = set()
        for target in self.targets:
            folders = (f"{results}/raw/", f"{results}/traces/")
            folder = next((folder for folder in folders if target.startswith(folder)), None)
            if folder is None:
                return None
            found.add(target.removeprefix(folder).rstrip("/"))
        return frozenset(found) or None


def has_failed(record: str) -> bool:
    """Return whether `record`, a folder of raw records, says that its cell could not run."""
    runs = Path(record, f"{RUNS.name}.parquet")
    return runs.exists() and "failed" in read(RUNS, runs)["status"].to_pylist()


def inputs_by_config(config: Mapping[str, Any]) -> Callable[[Cell], str]:
    """Return a function that gives a cell's further inputs as a text, the argument `inputs` of `ledger.round_folder`.

    Further inputs are the code of the study's own network, the files that a command names, and the settings from which
    samples are generated.
    """

    def contents(entry: Mapping[str, Any]) -> str:
        file = file_of(entry)
        return file.read_text() if file and file.exists() else ""

    def generated(entry: Mapping[str, Any]) -> str:
        settings = [entry.get(key) for key in ("generate", "sequence_length", "vocabulary")]
        later = [entry[key] for key in ("image_size",) if key in entry]  # digests of older studies have no image size
        return str(settings + later) if "generate" in entry else ""

    networks = {name: contents(entry) for name, entry in config["networks"].items()}
    for name, entry in config["commands"].items():
        digests = (hashlib.sha256(file.read_bytes()).hexdigest() for file in files_of(entry["run"]))
        networks[name] = " ".join(digests)
    data = {name: generated(entry) for name, entry in config["storage"].items()}
    return lambda cell: "".join(
        [networks.get(getattr(cell, "network", ""), ""), *(data.get(storage, "") for storage in cell.storages)]
    )


def measurement(cell: Cell, visits: Path, *, again: bool, inputs: str = "") -> Measurement:
    """Return the current measurement of a cell; see `ledger.round_folder` for `again` and `inputs`."""
    return Measurement(cell, round_folder(cell, visits / cell.path, again=again, inputs=inputs))


def measurements(
    study: Study, results: Path, again: Callable[[Cell], bool] = lambda _: False
) -> dict[str, Measurement]:
    """Return the current measurement of each cell of a study, by path, without imported cells and archived studies.

    `again` says whether a cell that was measured is to be measured once more.
    """
    inputs = inputs_by_config(study.config)
    kinds = () if study.config["archived"] else MEASURED
    return {
        cell.path: measurement(cell, results / "visits", again=again(cell), inputs=inputs(cell))
        for kind in kinds
        for cell in study.cells_of_kind(kind)
    }


def block_of(cell: Cell, nested: Collection[str] = ()) -> str:
    """Return the name of a cell's block. A block has all cells of one hardware entry and one repeat.

    A hardware entry in `nested` has a block for each number of nodes. There, each run to a target has its own block,
    too: its time is not compared with that of other cells.
    """
    parts = [cell.hardware]
    if cell.hardware in nested:
        run_values = [str(getattr(cell, axis)) for axis in cell.axes if axis not in ("hardware", "nodes", "repeat")]
        parts += [f"nodes{cell.nodes}", *(run_values if cell.kind == ConvergenceCell.kind else [])]
    return ".".join(parts if cell.repeat == 1 else [*parts, f"repeat{cell.repeat}"])


def group_by_block(measurements: Iterable[Measurement], nested: Collection[str] = ()) -> dict[str, list[Measurement]]:
    """Return all measurements by the name of their block (`block_of`)."""
    found: dict[str, list[Measurement]] = {}
    for one in measurements:
        found.setdefault(block_of(one.cell, nested), []).append(one)
    return found


def mark_file(name: str, block: Sequence[Measurement], results: str) -> Path:
    """Return the file that marks a block as measured. It is written once all raw records exist; it lists their folders.

    Its name has a digest of all settings and rounds, and ends with the hardware, like the name of `Measurement.done`.
    """
    digest = hashlib.sha256("".join(str(one.folder) for one in block).encode()).hexdigest()[:16]
    return Path(results, "visits", f"{name}.{digest}~{block[0].cell.hardware}")


def all_done(block: Iterable[Measurement], due_measurements: Collection[Measurement]) -> bool:
    """Return whether all measurements of a block will be done once `due_measurements` are done."""
    return all(one in due_measurements or one.done.exists() for one in block)


def blocks(
    measurements: Iterable[Measurement], request: RequestedTargets, results: str, nested: Collection[str] = ()
) -> dict[str, list[Measurement]]:
    """Return the measurements to make now, by block; a single measurement for a block that lacks only its mark file."""
    only = request.only_cells(results)
    found = {}
    for name, block in group_by_block(measurements, nested).items():
        due = [one for one in block if not one.done.exists() and (only is None or _is_requested(one.cell.path, only))]
        if due:
            found[name] = due
        elif only is None and not mark_file(name, block, results).exists():
            found[name] = block[:1]
    return found


def _is_requested(cell: str, paths: frozenset[str]) -> bool:
    return any(path == cell or path.startswith(f"{cell}/") for path in paths)

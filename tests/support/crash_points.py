"""The programs of the workflow, ended or refused at every single operation on a file; then run again.

``python -m crash_points [PROGRAM ...] [--every N] [--faults ...]`` prints one JSON line for each program and kind of
fault (`Tally`). A program is prepared once, in a folder that is copied for every trial. After a fault the ordinary
readers look at what is there: each result is the old one, the whole new one or none. Then the program runs again, and
what it leaves must be what an undisturbed run leaves: nothing lost, nothing doubled, nothing half.
"""

from __future__ import annotations

import argparse
import errno
import gc
import hashlib
import json
import os
import pickle
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import archived
import pandas as pd
import pyarrow as pa
import synthetic
from tally import Tally, tell
from tracing import Fault, Outcome, traced, undisturbed

import stallpoint.archive.importing
import stallpoint.archive.making
import stallpoint.storage.generate
import stallpoint.study.collect
from stallpoint.errors import InputError, program
from stallpoint.measure import job
from stallpoint.models import fitting
from stallpoint.records.parquet import read, write
from stallpoint.records.tables import MODEL_TABLES, SLURM_JOBS, TABLES, TIDY_TABLES, VISITS, Table
from stallpoint.schedule import session
from stallpoint.schedule.agenda import Agenda, Limits
from stallpoint.schedule.ledger import RECORD, Measurement, round_folder
from stallpoint.schedule.processes import LOCAL_LAUNCHER, VisitRequest
from stallpoint.study.cells import Cell
from stallpoint.study.job_kind import run_row
from stallpoint.study.kinds import cell_from_json, kind_of
from stallpoint.study.kinds.imported_kinds import ImportedCollectivesCell

ROOT = Path(__file__).parents[2]
RESULTS = Path("results/tiny")
State = dict[str, tuple[int, str]]
"""Name of a result -> how many rows or bytes it has, and a digest of it. Results that are half there have none."""
HALF = ""
VISITS_OF_EACH = 2
PATIENCE = 600
"""Seconds after which a step counts as hanging, whatever else the machine does."""


# --- made-up records, the same whenever they are asked for --------------------------------------------


@cache
def tidy() -> dict[str, pd.DataFrame]:
    """All tidy tables of a small study of every kind of cell but interventions, with visits that are long enough."""
    found = synthetic.study(
        nodes=(1, 2), storages=("local",), syncs=("wfbp",), prefetches=(0,), compute_batches=(64, 32), repeats=1,
        iterations=2, visits=1,
    )  # fmt: skip
    found["visits"] = found["visits"].assign(started=archived.STARTED, duration=1000.0, measuring=900.0)
    found["runs"] = found["runs"].assign(started=archived.STARTED, duration=1e6)
    return found


@cache
def cells() -> tuple[Cell, ...]:
    """Every cell of the study, as many visits to each; the last one cannot run."""
    return tuple(replace(cell_from_json(text), visits=VISITS_OF_EACH) for text in tidy()["runs"]["settings"])


def one_of_each_kind() -> list[Cell]:
    """A cell of each kind, and the one that cannot run."""
    found = {cell.kind: cell for cell in cells()[:-1]}
    return [*found.values(), cells()[-1]]


def rows_of(cell: Cell, visit: int, table: Table) -> pa.Table:
    """What a visit measures."""
    rows = tidy()[table.name]
    rows = rows[rows["cell"] == cell.path]
    if "visit" in rows:
        rows = rows.assign(visit=visit)
    if table is VISITS:
        rows = rows.assign(started=archived.STARTED + timedelta(hours=visit - 1))
    if "iteration" in rows and len(rows):
        rows = rows.assign(iteration=rows["iteration"] + (visit - 1) * (1 + rows["iteration"].max()))
    return pa.Table.from_pandas(rows, table.schema, preserve_index=False)


def fails(cell: Cell) -> bool:
    """Whether it cannot run."""
    return cell.path == cells()[-1].path


def tables_of(cell: Cell, visit: int) -> dict[str, pa.Table]:
    """Every table that a visit leaves behind, but `runs`."""
    found = {table.name: rows_of(cell, visit, table) for table in kind_of(cell).tables[1:]}
    return {name: rows for name, rows in found.items() if rows.num_rows}


class _OneRank:
    """As much of a communicator as one rank needs that has nobody to wait for."""

    rank, size = 0, 1

    def Dup(self) -> _OneRank:
        return self

    def Free(self) -> None: ...

    def Barrier(self) -> None: ...

    def Ibarrier(self) -> SimpleNamespace:
        return SimpleNamespace(Test=lambda: True)

    def allgather(self, value: Any) -> list[Any]:
        return [value]

    gather = allgather

    def Abort(self, code: int) -> None:
        sys.exit(code)


@dataclass
class _Rows:
    """Stands for the recorder: rows that are there already."""

    cell: Cell
    visit: int

    @property
    def tables(self) -> list[Table]:
        return [table for table in kind_of(self.cell).tables[1:] if self.arrow(table).num_rows]

    def arrow(self, table: Table) -> pa.Table:
        return rows_of(self.cell, self.visit, table)


def visit(order: VisitRequest) -> int:
    """Visit a cell, all but the measuring itself; its exit status."""
    if fails(order.cell):
        measure: Callable[[Any], None] = _too_little_memory
    else:
        measure = _nothing
    world: Any = SimpleNamespace(comm=_OneRank(), rank=0, size=1)
    rows: Any = _Rows(order.cell, order.visit)
    started = archived.STARTED
    try:
        job._RankVisit(order.cell, order.folder, started, order.position, 0, world, rows, lambda cell, _: cell).run(
            measure
        )
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def _nothing(*_: Any) -> None: ...


def _too_little_memory(*_: Any) -> None:
    raise MemoryError("made up")


JOURNAL = "STALLPOINT_TEST_JOURNAL"
"""Variable of the environment: a file that says which visits were begun."""


class VisitingHere:
    """Stands for `stallpoint.schedule.processes.Processes`: visits are made in this process."""

    ended, died = False, ""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def visit(self, *orders: VisitRequest) -> list[str]:
        return [self._visit(order) for order in orders]

    def _visit(self, order: VisitRequest) -> str:
        with open(os.environ[JOURNAL], "a") as journal:
            journal.write(f"{order.folder}\n")
        code = visit(order)
        return f"{order.cell.path}: visit {order.visit} ended with exit status {code}" if code else ""

    def end(self) -> None: ...

    stop = end


@contextmanager
def made_up() -> Iterator[None]:
    """Visits are made here and measure nothing; what depends on the time of day does not."""

    def same_row(cell: Cell, started: Any, **rest: Any) -> dict[str, Any]:
        return {**run_row(cell, archived.STARTED, **rest), "started": archived.STARTED, "duration": 1e6}

    with (
        mock.patch.object(session, "Processes", VisitingHere),
        mock.patch.object(job._RankVisit, "_measure", lambda self, measure: measure()),
        mock.patch.object(job, "run_row", same_row),
        mock.patch("stallpoint.study.job_kind.run_row", same_row),
        mock.patch("stallpoint.archive.importing.run_row", same_row),
    ):
        yield


# --- what the ordinary readers find -------------------------------------------------------------------


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def as_read(file: Path) -> tuple[int, str] | None:
    """A result as its reader takes it; None for one that is refused in words."""
    if file.suffix != ".parquet" or file.stem not in TABLES:
        content = file.read_bytes()
        return len(content), digest(content)
    try:
        rows = read(TABLES[file.stem], file)
    except InputError:
        return None
    return rows.num_rows, digest(repr([column.to_pylist() for column in rows.columns]).encode())


def files(*folders: str) -> Callable[[], State]:
    """All files in these folders that some reader would take: hidden ones, and copies under way, are none."""

    def found() -> State:
        state = {}
        for file in sorted(file for folder in folders for file in Path(folder).rglob("*") if file.is_file()):
            hidden = any(part.startswith(".") or part.endswith(".part") for part in file.parts)
            if not hidden and (content := as_read(file)):
                state[str(file)] = content
        return state

    return found


def records() -> State:
    """Every record of a cell, which is there as a whole: its tables together."""
    folders: dict[str, list[tuple[str, tuple[int, str]]]] = {}
    for name, value in files(f"{RESULTS}/raw")().items():
        folders.setdefault(str(Path(name).parent), []).append((name, value))
    return {folder: (len(tables), digest(repr(tables).encode())) for folder, tables in folders.items()}


def measurements() -> list[Measurement]:
    """Those of the session."""
    visits = RESULTS / "visits"
    return [Measurement(cell, round_folder(cell, visits / cell.path, again=False)) for cell in one_of_each_kind()]


def ledger(of: Sequence[Measurement] = ()) -> State:
    """Records and finished visits; one that lacks a table, or has other rows, is half there."""
    state: State = {}
    for one in of or measurements():
        if one.is_recorded:
            for table in kind_of(one.cell).tables:
                file = one.folder / RECORD / f"{table.name}.parquet"
                if file.exists():
                    rows = read(table, file)
                    rows = rows.drop([name for name in ("position",) if name in rows.column_names])
                    state[f"{one.cell.path} {table.name}"] = rows.num_rows, digest(repr(rows.to_pylist()).encode())
            state[f"{one.cell.path} done"] = (int(one.done.exists()), "done")
            continue
        for number in one.visits:
            state[f"{one.cell.path} visit {number}"] = _visited(one, number)
    return {name: value for name, value in state.items() if value != (0, "done")}


def _visited(one: Measurement, number: int) -> tuple[int, str]:
    """What is there of a visit."""
    try:
        run = one.run(number)
        expected = {} if run["status"] == "failed" else tables_of(one.cell, number)
        whole = all(
            one.table(table, number).equals(expected.get(table.name, table.schema.empty_table()))
            for table in kind_of(one.cell).tables[1:]
            if table is not SLURM_JOBS
        )
    except InputError:
        whole = False
    return (number, "whole") if whole else (number, HALF)


# --- the programs -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Program:
    """One program of the workflow, and what there is before it runs."""

    name: str
    step: Callable[[], None]
    found: Callable[[], State]
    """What is there, by name; in the working folder."""
    prepare: Callable[[], None] = _nothing


class _Given(dict[str, Any]):
    """As Snakemake gives inputs, outputs, parameters and logs to a script."""

    def __getattr__(self, name: str) -> Any:
        return self[name]

    def __getitem__(self, key: Any) -> Any:
        return list(self.values())[key] if isinstance(key, int) else super().__getitem__(key)


def script(name: str, **given: Mapping[str, Any]) -> None:
    """Run the script of a rule as Snakemake does."""
    snakemake = SimpleNamespace(
        log=[f"logs/{name}.log"],
        **{what: _Given(given.get(what, {})) for what in ("input", "output", "params", "wildcards")},
    )
    runpy.run_path(str(ROOT / "scripts" / f"{name}.py"), {"snakemake": snakemake}, "__main__")


def raw_records() -> None:
    for path in tidy()["runs"]["cell"]:
        synthetic.write_raw(tidy(), path, RESULTS / "raw" / path)


TABLE_FILES = {table.name: f"{RESULTS}/tables/{table.name}.parquet" for table in TIDY_TABLES}
MODEL_FILES = {table.name: f"{RESULTS}/models/{table.name}.parquet" for table in MODEL_TABLES}


def collect() -> None:
    folders = [str(RESULTS / "raw" / path) for path in tidy()["runs"]["cell"]]
    impossible = f"{RESULTS}/tables/impossible.txt"
    script("collect", input={"marks": [], "folders": folders}, output={**TABLE_FILES, "impossible": impossible})


def tables_there() -> None:
    raw_records()
    collect()
    shutil.rmtree("logs")


def fitted() -> dict[str, pd.DataFrame]:
    found: dict[str, pd.DataFrame] = pickle.loads(kept("fitted").read_bytes())
    return found


def kept(name: str) -> Path:
    """A file of what was computed once, outside of every program's folder."""
    return Path(os.environ["STALLPOINT_TEST_KEPT"], name)


def fit_once() -> None:
    tables_there()
    kept("fitted").write_bytes(pickle.dumps(dict(fitting.fit(tidy(), nodes=[1, 2], available={"cpu": 2}))))


def fit() -> None:
    params = {"models": {}, "shared_links": [], "what_if": [], "presets": {}, "available": {"cpu": 2}, "seed": 0}
    params |= {"rated": {}, "failures": {}, "epoch_samples": {}}
    with mock.patch.object(fitting, "fit", return_value=fitted()):
        script("fit", input={"networks": [], **TABLE_FILES}, output=MODEL_FILES, params=params)


def page_of_report() -> None:
    with program():
        _page_of_report()


def _page_of_report() -> None:
    import stallpoint.report.report
    from stallpoint.report.html import PagePart

    schema = TABLES["network_layers"].schema
    networks = synthetic.network_layers(tidy()["layers"]).reindex(columns=schema.names, fill_value=0)
    write(TABLES["network_layers"], pa.Table.from_pandas(networks, schema, preserve_index=False),
          Path("described/alexnet.parquet"))  # fmt: skip
    text = "<p>" + "report " * 100_000 + "</p>"
    with mock.patch.multiple(
        stallpoint.report.report, page=lambda *_, **__: text, evidence=lambda *_: ([], {}, []),
        raw_tables=lambda *_: (PagePart("raw-tables", "", "Data", ""), {}), filters=_nothing,
    ):  # fmt: skip
        stallpoint.report.report.write_report([], {}, RESULTS / "report.html", study="tiny")


def measure_cells() -> None:
    agenda = RESULTS / "schedule" / "cpu.json"
    arguments = ["measure.py", str(agenda), "logs/turns.log", LOCAL_LAUNCHER]
    with mock.patch.object(sys, "argv", arguments):
        runpy.run_path(str(ROOT / "scripts" / "measure.py"), {}, "__main__")


def write_agenda() -> None:
    Agenda.of(measurements(), Limits(), seed=1).write(RESULTS / "schedule" / "cpu.json")


@cache
def copying() -> str:
    """What the rule of a cell's record runs in a shell (workflow/rules/measure.smk)."""
    text = (ROOT / "workflow/rules/measure.smk").read_text()
    lines = re.findall(r'^\s+"(.*)"$', text[text.rindex("shell:") :], re.MULTILINE)
    return "".join(lines)


def copy_record() -> None:
    one = measurements()[0]
    copy(one, RESULTS / "raw" / one.cell.path)


def copy(one: Measurement, output: Path) -> None:
    """What Snakemake does for a cell's rule; it removes the output of a job that it repeats."""
    log = Path("logs/cell.log")
    with program():
        if output.exists():
            shutil.rmtree(output)
        for folder in (output.parent, log.parent):
            folder.mkdir(parents=True, exist_ok=True)
    for name, value in (("input", one.done), ("output.folder", output), ("log", log)):
        os.environ[name.replace(".", "_")] = str(value)
    command = re.sub(r"\{([a-z.]+):q\}", lambda found: f'"${found[1].replace(".", "_")}"', copying())
    done = subprocess.run(["bash", "-c", f"set -euo pipefail; {command}"])
    if done.returncode:
        print(f"error: {log.read_text() if log.exists() else 'no log'}", file=sys.stderr)
        sys.exit(2)


def session_ended() -> None:
    write_agenda()
    measure_cells()
    for there in ("logs", RESULTS / "raw"):
        shutil.rmtree(there)


def archive() -> None:
    with mock.patch("stallpoint.archive.making.WORKFLOW", ("LICENSE",)), program(Path("logs/archive.log")):
        stallpoint.archive.making.make_archive(
            archived.study_of(), Path("archives/secret.zip"), workflow=ROOT, users=[archived.USER],
            accounts=[archived.ACCOUNT], drawn_files=archived.DRAWN, draw_results=archived.draw,
        )  # fmt: skip


def archive_there() -> None:
    with mock.patch.object(archived, "run_row", lambda *given, **more: run_row(*given, **more)):
        archived.results(archived.study_of())


def imported_log(file: str, format: str) -> ImportedCollectivesCell:
    """The only cell of a study that imports a log of all-reduces."""
    config = {
        "study": "imported", "storage": {}, "matrix": [],
        "hardware": {"far": {"device": "cpu", "nodes": 2, "collectives": [
            {"file": file, "nodes": 2, "format": format}]}},
    }  # fmt: skip
    (cell,) = archived.expand(config, archived.SCHEMA).cells.values()
    assert isinstance(cell, ImportedCollectivesCell)
    return cell


def import_records() -> None:
    cell = imported_log("osu.txt", "osu")
    script("import_records", params={"cell": cell.to_json()}, output={"folder": str(RESULTS / "raw" / cell.path)})


def log_there() -> None:
    from all_reduce_samples import osu

    Path("osu.txt").write_text(osu())


def prepare_storage(*, seed: int) -> None:
    entry = {"path": "images", "format": "raw", "generate": 4, "max_corrupt": 0}
    script("prepare_storage", params={"entry": entry, "source": None, "seed": seed},
           wildcards={"storage": "local"}, output={"manifest": f"{RESULTS}/storage/local.json"})  # fmt: skip


def _job(cell: Cell) -> Program:
    def step() -> None:
        with program():
            (one,) = (one for one in measurements() if one.cell == cell)
            if not one.visits:  # as a session orders it
                sys.exit(visit(VisitRequest(cell, one.visit_folder(1), 1, 1)))

    return Program(f"job: {'cannot run' if fails(cell) else cell.kind}", step, ledger)


def programs() -> dict[str, Program]:
    """All of them, by name."""
    found = [
        *map(_job, one_of_each_kind()),
        Program("job: imported", import_records, records, log_there),
        Program("session", measure_cells, ledger, write_agenda),
        Program("copy of a record", copy_record, records, session_ended),
        Program("storage", partial(prepare_storage, seed=1), files("images", str(RESULTS))),
        Program("storage, again", partial(prepare_storage, seed=2), files("images", str(RESULTS)),
                partial(prepare_storage, seed=1)),
        Program("collect", collect, files(f"{RESULTS}/tables"), raw_records),
        Program("fit", fit, files(f"{RESULTS}/models"), fit_once),
        Program("report", page_of_report, files(str(RESULTS))),
        Program("archive", archive, files("archives"), archive_there),
    ]  # fmt: skip
    return {one.name: one for one in found}


# --- trials -------------------------------------------------------------------------------------------

FAULTS: dict[str, Callable[[int], Fault]] = {
    "kill -9": Fault,
    "kill -9, half written": partial(Fault, torn=True),
    "ENOSPC": partial(Fault, error=errno.ENOSPC),
    "EDQUOT": partial(Fault, error=errno.EDQUOT),
    "EIO": partial(Fault, error=errno.EIO),
}


class Explorer:
    """Tries one program."""

    def __init__(self, one: Program, scratch: Path) -> None:
        self._program, self._place = one, scratch / "place"
        self._template, self._said, self._state = (scratch / name for name in ("template", "said", "state.json"))
        self._journal = scratch / "journal"
        os.environ[JOURNAL] = str(self._journal)
        os.environ["STALLPOINT_TEST_KEPT"] = str(scratch)
        self._place.mkdir()
        self._journal.touch()
        self._checked(undisturbed(self._inside(one.prepare), self._said, PATIENCE))
        shutil.copytree(self._place, self._template, symlinks=True)
        (self._before,) = self._look(runs=0)
        self._journal.write_text("")
        whole = traced(self._inside(one.step), self._place, None, self._said, PATIENCE)
        self._checked(whole)
        self.operations = whole.operations
        self._visits = self._begun()
        looked = self._look(runs=1)
        assert len(looked) > 1, f"{one.name} does not run again: {self._said.read_text()}"
        self._whole, again = looked
        assert self._whole, f"{one.name}: nothing is there after it ran"
        assert self._whole == again, f"{one.name}: another run leaves something else"

    def run(self, fault: str, every: int = 1, first: int = 0) -> Tally:
        """One trial for each operation, or every so-many-th."""
        tally = Tally(self._program.name, fault, of_operations=len(self.operations))
        for operation in range(first % every, len(self.operations), every):
            self._try(tally, FAULTS[fault](operation))
        return tally

    def _try(self, tally: Tally, fault: Fault) -> None:
        shutil.rmtree(self._place)
        shutil.copytree(self._template, self._place, symlinks=True)
        self._journal.write_text("")
        with_fault = traced(self._inside(self._program.step), self._place, fault, self._said, PATIENCE)
        said = with_fault.said
        wrong = []
        tally.trials += 1
        if with_fault.status is None:
            tally.hangs += 1
            wrong.append("it hangs")
        if fault.error and with_fault.status:
            tally.refused += 1
            clear = with_fault.status in (2, 3) and "Traceback" not in said and "error: " in said
            tally.clear += clear
            if not clear:
                wrong.append(f"no clear message: {said.strip()[-300:]!r}")
        looked = self._look(runs=1)
        state, after = looked if len(looked) == 2 else (looked[0], None)
        half = [name for name, value in state.items() if not self._known(name, value)]
        if fault.error and with_fault.status == 0 and (missing := set(self._whole) - set(state)):
            tally.lost += 1
            wrong.append(f"it ended well without {sorted(missing)}")
        came = any(value != self._before.get(name) for name, value in state.items())
        if fault.error and with_fault.status and not came and (gone := set(self._before) - set(state)):
            tally.lost += 1
            wrong.append(f"refused, and what was there before is gone: {sorted(gone)}")
        if half:
            tally.half += 1
            wrong.append(f"half there: {half}")
        if after is None:
            tally.lost += 1
            wrong.append(f"cannot be run again: {self._said.read_text()[-300:]!r}")
        else:
            lost = [name for name, value in self._whole.items() if name not in after or after[name] < value]
            more = [name for name, value in after.items() if name not in self._whole or value > self._whole[name]]
            if repeated := max(0, self._begun() - self._visits - 1):
                more.append(f"{repeated} more visits repeated than one")
            tally.lost += bool(lost)
            tally.doubled += bool(more)
            wrong += [
                f"{what} after it ran again: {names}" for what, names in (("lost", lost), ("more", more)) if names
            ]
        tally.red += [
            f"{tally.of}, {tally.fault} at operation {fault.operation} ({with_fault.hit}): {one}" for one in wrong
        ]

    def _known(self, name: str, value: tuple[int, str]) -> bool:
        if value[1] == "whole":  # a visit that will be part of a record
            return True
        return value in (self._before.get(name), self._whole.get(name))

    def _begun(self) -> int:
        return len(self._journal.read_text().splitlines())

    def _inside(self, step: Callable[[], None]) -> Callable[[], None]:
        def inside() -> None:
            os.chdir(self._place)
            with made_up():
                step()

        return inside

    def _look(self, runs: int) -> list[State]:
        """What is there, and what is there after another run; without the latter if that failed."""

        def look() -> None:
            states = [self._program.found()]
            for _ in range(runs):
                try:
                    self._program.step()
                except SystemExit as end:
                    if end.code:
                        break
                states.append(self._program.found())
            self._state.write_text(json.dumps(states))

        self._state.unlink(missing_ok=True)
        outcome = undisturbed(self._inside(look), self._said, PATIENCE)
        if outcome.status:
            return [{"the readers fail": (0, HALF)}]
        return [
            {name: (value[0], value[1]) for name, value in state.items()}
            for state in json.loads(self._state.read_text())
        ]

    def _checked(self, outcome: Outcome) -> None:
        if outcome.status:
            raise AssertionError(f"{self._program.name} without a fault: {outcome.status}\n{outcome.said}")


def explore(names: Sequence[str], faults: Sequence[str], every: int) -> Iterator[Tally]:
    """The tallies of these programs and faults; with `every` above 1, of some operations each."""
    for place, name in enumerate(names):
        with tempfile.TemporaryDirectory(prefix="stallpoint-crash-") as scratch:
            explorer = Explorer(programs()[name], Path(scratch).resolve())
            for number, fault in enumerate(faults):
                yield explorer.run(fault, every, first=place + number)


def main() -> None:
    warnings.simplefilter("ignore")
    gc.freeze()  # copies of the process copy fewer pages
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", choices=[*programs(), []], help="all, unless some are named")
    parser.add_argument("--every", type=int, default=1, help="try every so-many-th operation")
    parser.add_argument("--faults", nargs="+", choices=list(FAULTS), default=list(FAULTS))
    arguments = parser.parse_args()
    tell(explore(arguments.programs or list(programs()), arguments.faults, arguments.every))


if __name__ == "__main__":
    main()

"""Histories of a study, drawn at random: submit, kill, requeue, cancel, fill the disk, drop the storage, run again.

``python -m histories [--examples N] [--steps N] [--seed N]`` prints one JSON line for each kind of fault (`Tally`).
What a history does is what the workflow does without Slurm: it says which cells are to be measured, a session visits
them, records are copied to where the user finds them, and collected. Whatever happened, a last run without a fault ends
with every cell recorded exactly once, or failed with a reason, and with all of that in the tables; at most one visit
was repeated for each fault, no result was ever half there, nothing hung, and whoever was refused said so in one line.
"""

from __future__ import annotations

import errno
import gc
import os
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import crash_points
import hypothesis
from crash_points import HALF, JOURNAL, PATIENCE, RESULTS, made_up, rows_of
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from tally import Tally, as_program
from tracing import Fault, Outcome, traced, undisturbed

from stallpoint.errors import program
from stallpoint.records.parquet import read
from stallpoint.records.tables import RUNS, TIDY_TABLES, VISITS, Table
from stallpoint.schedule.agenda import Agenda, Limits
from stallpoint.schedule.ledger import Measurement
from stallpoint.schedule.requested import RequestedTargets, blocks, mark_file, measurement
from stallpoint.study.cells import Cell
from stallpoint.study.collect import collect_all

FAULTS: dict[str, Callable[..., Fault]] = {
    "kill": Fault,
    "kill in a write": partial(Fault, torn=True),
    "cancel": partial(Fault, told=True),
    "fill the disk": partial(Fault, error=errno.ENOSPC),
    "use up the quota": partial(Fault, error=errno.EDQUOT),
    "drop the storage": partial(Fault, error=errno.EIO, gone=True),
}
BETWEEN, ALL = 250, 1500
"""Operations of a run that measures everything: without writes, and all; beyond the last one nothing goes wrong."""
PLACES = st.one_of(
    st.tuples(st.integers(0, BETWEEN), st.just(True)), st.tuples(st.integers(0, ALL), st.just(False))
)  # fmt: skip
"""Where a fault is: number of the operation, and whether writes are counted."""


def cells() -> list[Cell]:
    """Three kinds of cells, one of which cannot run."""
    kinds = {cell.kind: cell for cell in crash_points.cells()[:-1]}
    return [kinds["sgemm"], kinds["collectives"], crash_points.cells()[-1]]


def measurements(again: Sequence[Cell] = ()) -> list[Measurement]:
    """Where each cell is measured, as the workflow finds it."""
    return [measurement(cell, RESULTS / "visits", again=cell in again) for cell in cells()]


def block(again: Sequence[Cell] = ()) -> list[Measurement]:
    """What is to be measured now."""
    return blocks(measurements(again), RequestedTargets(), str(RESULTS)).get("cpu", [])


def run(again: Sequence[Cell] = (), *, requeued: bool = False) -> None:
    """What one run of the workflow does; a requeued job finds the agenda it was submitted with."""
    agenda = RESULTS / "schedule" / "cpu.json"
    if not requeued:
        with program():
            mark = mark_file("cpu", measurements(again), str(RESULTS))
            replace(Agenda.of(block(again), Limits(), seed=1), mark=str(mark)).write(agenda)
    ordered = Agenda.read(agenda, patience=0)
    if ordered.orders:
        crash_points.measure_cells()
        with program():
            ordered.finish()
    if requeued:
        return
    for one in measurements():
        if one.done.exists() and not one.placed:
            one.finish()
    with program(Path("logs/collect.log")):
        records = [RESULTS / "raw" / cell.path for cell in cells()]
        collect_all(records, {table.name: RESULTS / "tables" / f"{table.name}.parquet" for table in TIDY_TABLES})


def cleaned_up() -> None:
    """What Snakemake does when a job of it failed: it removes the job's outputs."""
    agenda = RESULTS / "schedule" / "cpu.json"
    if agenda.exists():
        for one in Agenda.read(agenda).measurements():
            one.done.unlink(missing_ok=True)


def expected(cell: Cell, table: Table) -> list[dict[str, object]]:
    """Rows of a cell that was measured as often as it says; without those that tell of its turns."""
    if table is RUNS or crash_points.fails(cell):
        return []
    visits = range(1, 1 + cell.visits)
    if table not in crash_points.kind_of(cell).tables:
        return []
    if "visit" not in table.schema.names:
        visits = range(1, 2)
    return [row for visit in visits for row in rows_of(cell, visit, table).drop(_of_turns(table)).to_pylist()]


def _of_turns(table: Table) -> list[str]:
    return ["position"] if table is VISITS else []


def check_end() -> None:
    """Every cell is there exactly once, or failed with a reason, in its record and in the tables."""
    assert not block(), "something is still to be measured"
    for table in TIDY_TABLES:
        collected = read(table, RESULTS / "tables" / f"{table.name}.parquet").drop(_of_turns(table)).to_pylist()
        if table is RUNS:
            found = {(row["cell"], row["status"], bool(row["reason"])) for row in collected}
            failed = {cell.path: crash_points.fails(cell) for cell in cells()}
            wanted = {(path, "failed" if one else "ok", one) for path, one in failed.items()}
            assert found == wanted, f"runs: {found ^ wanted}"
            assert len(collected) == len(wanted), "a cell has several rows of runs"
            continue
        rows = Counter(map(repr, (row for cell in cells() for row in expected(cell, table))))
        there = Counter(map(repr, collected))
        assert there == rows, f"{table.name}: {(rows - there).total()} rows lost, {(there - rows).total()} too many"


TALLIES: dict[str, Tally] = {}


class History(RuleBasedStateMachine):
    """One study from its beginning, with whatever happens to it."""

    scratch: ClassVar[Path]

    def __init__(self) -> None:
        super().__init__()
        self.place = self.scratch / "place"
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir()
        self.journal = self.scratch / "journal"
        self.journal.write_text("")
        os.environ[JOURNAL] = str(self.journal)
        self.faults = 0
        self.last = "submit"

    def _step(self, name: str, fault: Fault | None, step: Callable[[], None], *, clean: bool = True) -> None:
        said = self.scratch / "said"
        self.last = name
        tally = TALLIES.setdefault(name, Tally("history", name))
        tally.trials += 1
        outcome = self._try(step, fault, said)
        self.faults += bool(outcome.hit)
        if outcome.status is None:
            self._fail("hangs", "it hangs")
        if outcome.status and not outcome.hit:
            self._fail("lost", f"it fails, and nothing was in its way: {outcome.said[-600:]}")
        if fault and fault.error and outcome.status:
            tally.refused += 1
            if "Traceback" in outcome.said or "error: " not in outcome.said:
                self._fail("", f"no clear message: {outcome.said[-600:]}")
            tally.clear += 1
        if outcome.status and clean:
            self._look(cleaned_up, "lost")
        self._look(self._readable, "half")
        if (repeated := self._repeated()) > self.faults:
            self._fail("doubled", f"{repeated} visits repeated after {self.faults} faults")

    def _try(self, step: Callable[[], None], fault: Fault | None, said: Path) -> Outcome:
        inside = partial(self._inside, step)
        if fault is None:
            return undisturbed(inside, said, PATIENCE)
        return traced(inside, self.place, fault, said, PATIENCE)

    def _inside(self, step: Callable[[], None]) -> None:
        os.chdir(self.place)
        with made_up():
            try:
                step()
            except KeyboardInterrupt:
                os._exit(128 + signal.SIGTERM)

    def _look(self, step: Callable[[], None], what: str) -> None:
        said = self.scratch / "said"
        if undisturbed(partial(self._inside, step), said, PATIENCE).status:
            self._fail(what, said.read_text()[-600:])

    def _readable(self) -> None:
        """Whatever an ordinary reader would take is whole."""
        half = [name for name, value in crash_points.ledger(measurements()).items() if value[1] == HALF]
        assert not half, f"half there: {half}"
        for file in sorted(Path(RESULTS, "raw").rglob("*.parquet")):
            if not any(part.endswith(".part") or part.startswith(".") for part in file.parts):
                read(crash_points.TABLES[file.stem], file)

    def _repeated(self) -> int:
        begun = Counter(self.journal.read_text().splitlines())
        return begun.total() - len(begun)

    def _fail(self, what: str, words: str) -> None:
        tally = TALLIES[self.last]
        if what:
            setattr(tally, what, getattr(tally, what) + 1)
        tally.red.append(f"history, {self.last}: {words}")
        raise AssertionError(f"{self.last}: {words}")

    @rule(what=st.sampled_from(list(FAULTS)), place=PLACES)
    def job_fails(self, what: str, place: tuple[int, bool]) -> None:
        self._step(what, FAULTS[what](place[0], between=place[1]), run)

    @rule(what=st.sampled_from(["kill", "kill in a write", "cancel"]), place=PLACES)
    def kill_snakemake(self, what: str, place: tuple[int, bool]) -> None:
        """Nobody removes what the job left behind."""
        self._step("kill snakemake", FAULTS[what](place[0], between=place[1]), run, clean=False)

    @rule(place=PLACES)
    def requeue(self, place: tuple[int, bool]) -> None:
        """The scheduler kills the job and starts it again, as it was."""
        if (self.place / RESULTS / "schedule" / "cpu.json").exists():
            requeued = partial(run, requeued=True)
            self._step("requeue", Fault(place[0], between=place[1]), requeued, clean=False)
            self._step("requeue", None, requeued)

    @rule()
    def submit(self) -> None:
        self._step("run again", None, run)

    @rule(which=st.integers(0, 2), place=PLACES)
    def measure_again(self, which: int, place: tuple[int, bool]) -> None:
        """The user asks for a cell once more, and that is killed."""
        self._step("kill, measured again", Fault(place[0], between=place[1]), partial(run, cells()[which : which + 1]))

    def teardown(self) -> None:
        """The last run, which nothing happens to."""
        if sys.exc_info()[0] is None:
            last = self.last
            self._step("run again", None, run)
            self.last = last if last in TALLIES else "run again"
            self._look(check_end, "lost")


def histories(examples: int, steps: int, seed: int) -> list[Tally]:
    """Draw so many histories of so many steps."""
    TALLIES.clear()
    with tempfile.TemporaryDirectory(prefix="stallpoint-history-") as scratch, suppress(AssertionError):
        History.scratch = Path(scratch).resolve()
        settings = hypothesis.settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, database=None,
            phases=[hypothesis.Phase.generate], suppress_health_check=list(hypothesis.HealthCheck),
        )  # fmt: skip
        try:
            run_state_machine_as_test(hypothesis.seed(seed)(History), settings=settings)
        except AssertionError:
            traceback.print_exc()
            raise
    return list(TALLIES.values())


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    gc.freeze()
    as_program(histories, __doc__, examples=30, steps=5)

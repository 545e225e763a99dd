"""Inputs of questions: a study's tables, its scaling curves with their rows, and its machines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isnan
from typing import TYPE_CHECKING, NamedTuple

from stallpoint.base.curve import THRESHOLD
from stallpoint.base.frames import records
from stallpoint.base.measured import SERIES
from stallpoint.base.section import Finding, TableRow
from stallpoint.base.stall import Stall, Verdict
from stallpoint.base.statistics import INTERVAL, Estimate, groups
from stallpoint.questions.claims.judge import JudgedClaim
from stallpoint.study.kinds.command_kind import CommandCell
from stallpoint.study.kinds.imported_kinds import ImportedTrainCell
from stallpoint.study.kinds.train_kind import TrainCell
from stallpoint.study.study import Exclusion

if TYPE_CHECKING:
    import pandas as pd


class MeasuredCount(NamedTuple):
    """Measurements on one number of workers. Speedup and efficiency refer to the fewest workers measured."""

    nodes: int
    ranks: int
    seconds: Estimate
    """Iteration time, s."""
    rate: Estimate
    """Samples per second."""
    speedup: Estimate
    efficiency: Estimate

    @property
    def half_width(self) -> float:
        """Half the width of the speedup's interval over the speedup; 0 on the fewest workers, infinite if unbounded."""
        return (self.speedup.high - self.speedup.low) / (2 * self.speedup.value)


class CurveRows(TableRow):
    """A scaling curve: its row in the table ``stalling``, and its rows in other tables."""

    def __init__(self, row: TableRow, rows: Callable[[str], Mapping[tuple[object, ...], list[TableRow]]]) -> None:
        """Keep the `row`, and the function `rows`, which maps a table's name to its rows by curve."""
        super().__init__(row)
        self._rows = rows

    @property
    def key(self) -> tuple[object, ...]:
        """Values of the columns that identify a curve."""
        return tuple(self[name] for name in SERIES)

    def of(self, table: str) -> list[TableRow]:
        """Return the rows of a table that belong to this curve."""
        return self._rows(table).get(self.key, [])

    @cached_property
    def measured(self) -> list[MeasuredCount]:
        """Measurements by number of workers, rising."""
        known_rows = sorted(self.of("predictions"), key=lambda row: int(row["ranks"]))
        return [_measured_count(row) for row in known_rows if not isnan(row["measured_speedup"])]

    @property
    def unanswered(self) -> str:
        """Why there is no verdict; empty if there is a verdict."""
        return "" if self["verdict"] != Verdict.WITHHELD and self["verdict_ranks"] else str(self["note"])

    @property
    def limitation(self) -> str:
        """Why the verdict covers only some measured counts; empty if it covers all, or there is no verdict."""
        return "" if self.unanswered else str(self["note"])

    @property
    def stall_ranks(self) -> Estimate | None:
        """Worker count at which the curve stalls; None if it does not within the counts considered."""
        return self.estimate("stall_ranks") if self["reached"] else None

    def stall(self, basis: str) -> dict[int, float]:
        """Return the probability of a stall at each worker count, considering ``measured`` or all ``known`` counts."""
        rows = [row for row in self.of("stall_probabilities") if row["basis"] == basis]
        return dict(sorted((int(row["ranks"]), float(row["probability"])) for row in rows))

    @property
    def no_stall(self) -> float:
        """Probability that the curve does not stall up to the largest known number of workers."""
        known = self.stall("known")
        return known[max(known)] if known else 0.0

    @property
    def deciding_ranks(self) -> list[int]:
        """Counts whose measurement would decide an undecided verdict.

        If only one outcome is likely, too little was measured beyond a stall (`Curve.is_short`, `one_step`). Then
        the double of the stall's count would decide. If this was measured, the double of the largest count would.
        """
        measured = self.stall("measured")
        deciding = Stall(measured).crucial_counts if measured else []
        stall = int(self["verdict_ranks"]) if self["verdict"] == Verdict.UNDECIDED else 0
        if stall and not deciding:
            largest = max(measured)
            deciding = [2 * (stall if largest < 2 * stall else largest)]
        return deciding

    @property
    def predicted(self) -> tuple[Verdict | None, float]:
        """Verdict that is predicted beyond the measured counts, and the probability that all of them gain.

        There is no verdict if no count beyond was predicted, or if the curve stalls at a measured count.
        """
        is_predicted = self["largest_considered"] > self["largest_measured"]
        if not is_predicted or not self.stall("known") or self["verdict"] in (Verdict.STALLS, Verdict.WITHHELD):
            return None, 0.0
        if (gains := self.no_stall) >= INTERVAL:
            return Verdict.SCALES, gains
        if 1 - gains >= INTERVAL and self["reached"] and self["basis"] == "predicted":
            return Verdict.STALLS, gains
        return Verdict.UNDECIDED, gains


def _measured_count(row: TableRow) -> MeasuredCount:
    seconds, speedup, efficiency = (
        Estimate(*(float(row[f"measured_{name}{end}"]) for end in ("", "_low", "_high")))
        for name in ("iteration", "speedup", "efficiency")
    )
    ends = (seconds.value, seconds.high, seconds.low)
    rate = Estimate(*(row["global_batch"] / end if end else float("inf") for end in ends))
    return MeasuredCount(int(row["nodes"]), int(row["ranks"]), seconds, rate, speedup, efficiency)


@dataclass(frozen=True)
class MeasuredMachine:
    """The machines of one hardware, and the processes of the largest training on it."""

    hardware: str
    machines: int
    processes: int
    nodes: int
    models: tuple[str, ...] = ()
    imported: bool = False
    """Whether the entry has imported measurements only."""


@dataclass(frozen=True)
class StudyTables:
    """The tables of a study by name (model tables and tidy tables), and further results."""

    tables: Mapping[str, pd.DataFrame]
    threshold: float = THRESHOLD
    claims: Sequence[JudgedClaim] = ()
    external: Sequence[Finding] | None = ()
    """Answers of tables from elsewhere; None where the package that reads them is not installed."""
    excluded: Sequence[Exclusion] = ()
    """Combinations that the study does not run."""
    impossible: str = ""
    """The first impossible value of the records, with its file."""

    def rows(self, table: str) -> list[TableRow]:
        """Return the rows of a table."""
        return records(self.tables[table])

    @cached_property
    def curves(self) -> list[CurveRows]:
        """Scaling curves of the study, each with its rows."""
        tables_of_curves: dict[str, dict[tuple[object, ...], list[TableRow]]] = {}

        def rows(table: str) -> Mapping[tuple[object, ...], list[TableRow]]:
            if table not in tables_of_curves:
                tables_of_curves[table] = {tuple(key): records(of) for key, of in groups(self.tables[table], SERIES)}
            return tables_of_curves[table]

        return [CurveRows(row, rows) for row in self.rows("stalling")]

    @cached_property
    def machines(self) -> list[MeasuredMachine]:
        """Machines of each hardware. Those of imported training are unknown."""
        return [*self._measured_machines(), *self._imported_machines()]

    def _measured_machines(self) -> Iterator[MeasuredMachine]:
        runs, environments = self.tables["runs"], self.tables["environments"]
        known = environments.merge(runs[["cell", "hardware", "nodes"]], on="cell")
        for hardware, rows in groups(known, "hardware"):
            of_cells = rows.groupby("cell").agg({"node": "nunique", "rank": "nunique", "nodes": "first"})
            largest = of_cells.sort_values("rank").iloc[-1]
            models = rows["gpu_model"].where(rows["gpu_model"] != "", rows["cpu_model"])
            machines, processes, nodes = (int(largest[name]) for name in ("node", "rank", "nodes"))
            yield MeasuredMachine(hardware, machines, processes, nodes, tuple(sorted(set(map(str, models)))))

    def _imported_machines(self) -> Iterator[MeasuredMachine]:
        runs, kinds = self.tables["runs"], (TrainCell.kind, CommandCell.kind, ImportedTrainCell.kind)
        for hardware, rows in groups(runs[(runs["status"] == "ok") & runs["kind"].isin(kinds)], "hardware"):
            if (rows["kind"] == ImportedTrainCell.kind).all():
                largest = rows.sort_values("ranks").iloc[-1]
                nodes = int(largest["nodes"])
                yield MeasuredMachine(hardware, nodes, int(largest["ranks"]), nodes, imported=True)

    @property
    def untrusted(self) -> list[str]:
        """Hardware entries whose verdicts are not to be trusted, as their A/A controls differ."""
        return unique_names(row["hardware"] for row in self.rows("controls") if not row["agrees"])


def unique_names(names: Iterable[str]) -> list[str]:
    """Return each name once, in order of appearance."""
    return list(dict.fromkeys(names))

"""Checks of raw records for impossible values: bounds for each column, and rules that compare several rows.

Bounds of every column: no number is negative or infinite, no duration exceeds the longest visit to its cell, times are
between 2000 and 2100, texts have no control characters. Further bounds stand at the end of a column's meaning in
`records.tables`, such as ``[<= iteration_time]``. There, ``[summed]`` marks a duration summed over CPUs or threads, and
``[unlimited]`` a duration that may be longer than a visit. Unknown values (null, NaN) are always allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import polars as pl
import pyarrow as pa
from polars import col

from stallpoint.records.tables import (
    ENVIRONMENTS,
    FLAG,
    INTERVENED,
    ITERATIONS,
    LAYERS,
    PEAK_MEMORY,
    REAL,
    RUNS,
    SGEMM,
    TEXT,
    VISITS,
    Column,
    Table,
)
from stallpoint.text import CONTROLS

_CENTURY_BOUNDS = (datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC))
_VISIT = ("cell", "rank", "visit")
"""Columns that identify a visit of a rank."""
_STEP_KEY = (*_VISIT, "iteration")
_ITERATION_PARTS = ("data_wait", "host_to_device", "forward", "backward", "exposed_communication", "update")
_PASSES = ("forward", "backward")
_MOMENTS = ("gradient_ready", "all_reduce_end", "gather_end", "gather_again_end")
"""Columns with moments within an iteration."""
_CPU_COLUMNS = ("node_busy", "steal")
_LONGEST, _WARMUP, _THREADS = "longest visit", "warm-up of the cell", "threads of the cell"
"""Columns joined to rows: the longest visit to the cell, s, and the fields of `CellLimits`."""
_INTEGER_PATTERN = re.compile(r"-?\d+")
_TICK_ERROR = 0.1
"""Largest error of the difference of two readings of a CPU's counters, s."""
_TIMES = {"": 1, "summed": 4096}
"""Largest ratio of a duration to the duration of its visit, by the column's mark; no node has 4096 CPUs."""
_ROUNDING = 1e-6
_SLACK, _CLOCKS = 1.05, 1e-3
"""Ratio, and seconds, by which times of different clocks (of a GPU's events, of nodes, of kernels) may disagree."""


Record = Mapping[Table, pl.LazyFrame]
"""Rows of each table, of any number of cells, with row numbers (`numbered`)."""


@dataclass(frozen=True)
class CellLimits:
    """Limits that a cell's settings set for its record."""

    warmup: int
    """Number of iterations at the beginning of a visit that are warm-up."""
    threads: int
    """Number of threads that a worker may use."""


@dataclass(frozen=True)
class Rule:
    """Rule for a column's values. `wrong` is true in rows that break the rule; `bounds` describes allowed values."""

    column: str
    bounds: str
    wrong: pl.Expr


@dataclass(frozen=True)
class CheckedRows:
    """Rows of a table, and rules for them. Some rules compare a value with a column that was added to the rows."""

    table: Table
    rows: pl.LazyFrame
    rules: Sequence[Rule]


class ImpossibleValue(Exception):
    """Error that the record of `cell` has an impossible value in `table`."""

    def __init__(self, table: Table, cell: str, reason: str) -> None:
        super().__init__(reason)
        self.table, self.cell = table, cell


def numbered(rows: Path | pa.Table) -> pl.LazyFrame:
    """Return the rows of a Parquet file or Arrow table, with row numbers from 1 in the column ``row``."""
    if isinstance(rows, Path):
        return pl.scan_parquet(rows, row_index_name="row", row_index_offset=1, glob=False)
    return pl.LazyFrame(pl.from_arrow(rows)).with_row_index("row", 1)


def check(record: Record, limits: Mapping[str, CellLimits]) -> None:
    """Raise `ImpossibleValue` for the first impossible value of `record`; `limits` are the cells' limits by path."""
    limits_by_cell = pl.LazyFrame(
        {
            "cell": [*limits],
            _WARMUP: [one.warmup for one in limits.values()],
            _THREADS: [one.threads for one in limits.values()],
        },
        schema={"cell": pl.String, _WARMUP: pl.Int64, _THREADS: pl.Int64},  # Polars infers no types from empty lists
    )
    longest_visits = pl.LazyFrame(schema={"cell": pl.String, _LONGEST: pl.Float64})
    if VISITS in record:
        longest_visits = record[VISITS].group_by("cell").agg(col("duration").max().alias(_LONGEST))
    column_checks = [
        CheckedRows(table, rows.join(longest_visits, on="cell", how="left"), _column_rules(table))
        for table, rows in record.items()
    ]
    _check_all([*column_checks, *_row_rules(record, limits_by_cell)])


def _check_all(rules: Sequence[CheckedRows]) -> None:
    """Raise `ImpossibleValue` for the first value that breaks one of the rules."""
    frames = [
        one.rows.select(rule.wrong.any().alias(str(place)) for place, rule in enumerate(one.rules)) for one in rules
    ]
    for one, results in zip(rules, pl.collect_all(frames, engine="streaming"), strict=True):
        for rule, wrong in zip(one.rules, results.row(0), strict=True):
            if wrong:
                raise _impossible_value(one, rule)


def _impossible_value(checked_rows: CheckedRows, rule: Rule) -> ImpossibleValue:
    """Return the error for the first row that breaks a rule; the message counts rows from the cell's first row."""
    broken_row = checked_rows.rows.filter(rule.wrong).select("row", "cell", rule.column).sort("row").head(1)
    row, cell, value = broken_row.collect().row(0)
    first_row = checked_rows.rows.filter(col("cell") == cell).select(col("row").min()).collect().item()
    text = value if isinstance(value, int | float) else repr(str(value))
    return ImpossibleValue(
        checked_rows.table, cell, f"{rule.column} is {text} in row {row - first_row + 1:,}; it has to be {rule.bounds}"
    )


def check_columns(table: Table, rows: pa.Table) -> None:
    """Raise `ImpossibleValue` for the first value of `rows` that is outside the bounds of its column."""
    rules = [rule for rule in _column_rules(table) if {*rule.wrong.meta.root_names()} <= {*rows.column_names}]
    _check_all([CheckedRows(table, numbered(rows), rules)])


@cache
def _column_rules(table: Table) -> Sequence[Rule]:
    """Return the rules that follow from the bounds of each column of a table."""
    return [rule for column in table.columns for rule in _rules_of_column(column)]


def _rules_of_column(column: Column) -> Iterator[Rule]:
    value = col(column.name)
    if column.type == TEXT:
        yield Rule(column.name, "without control characters", value.str.contains(CONTROLS))
    elif pa.types.is_timestamp(column.type):
        yield Rule(column.name, "of this century", ~value.is_between(*_CENTURY_BOUNDS))
    elif column.type != FLAG and column.bound != "any number":
        known_value = value.fill_nan(None) if column.type == REAL else value
        sign, _, bound = column.bound.rpartition(" ")
        limit = pl.lit(float(bound)) if _INTEGER_PATTERN.fullmatch(bound) else col(bound) if sign else pl.lit(0.0)
        if sign == ">=":
            yield Rule(column.name, f"no less than {bound}", known_value < limit)
        else:
            yield Rule(column.name, "no less than 0", known_value < (-_CLOCKS if column.unit == "s" else 0))
        if sign == "<=":
            yield Rule(column.name, f"no more than {bound}", known_value > limit * _SLACK)
        elif column.unit == "s" and column.bound in _TIMES:
            factor = _TIMES[column.bound]
            yield Rule(
                column.name,
                "no longer than its visit" if factor == 1 else f"no more than {factor:,} times its visit",
                known_value > col(_LONGEST) * factor * _SLACK + _CLOCKS,
            )
        if column.type == REAL:
            yield Rule(column.name, "finite", known_value.is_infinite())


def _row_rules(record: Record, limits_by_cell: pl.LazyFrame) -> Iterator[CheckedRows]:
    """Yield the rules that compare a row with other rows of the record, or with the settings of its cell."""
    for table, rows in record.items():
        joined = rows.join(limits_by_cell, on="cell", how="left", maintain_order="left")
        if table in (ENVIRONMENTS, VISITS):
            wrong = col("threads") > col(_THREADS)
            yield CheckedRows(table, joined, [Rule("threads", "no more than those of the cell", wrong)])
        if table in (ITERATIONS, INTERVENED):
            yield CheckedRows(table, joined, list(_iteration_rules()))
        if table in (ITERATIONS, INTERVENED) and VISITS in record:
            yield _rules_within_visits(table, record)
    if VISITS in record:
        yield _visit_rules(record)
    if LAYERS in record:
        yield from _layer_rules(record)
    if PEAK_MEMORY in record:
        wrong = pl.coalesce("device_peak", "host_peak") < col("weights")
        yield CheckedRows(PEAK_MEMORY, record[PEAK_MEMORY], [Rule("weights", "no more than the peak of memory", wrong)])
    if SGEMM in record:
        products = 2e-9 * col("m") * col("k") * col("n") * col("operations")
        wrong = (col("gflops") * col("seconds") / products - 1).abs() > _ROUNDING
        yield CheckedRows(SGEMM, record[SGEMM], [Rule("gflops", "2·m·k·n·operations / seconds / 1e9", wrong)])


def _visit_rules(record: Record) -> CheckedRows:
    runs = record[RUNS].select("cell", run=col("duration"), began=col("started"))
    starts_at_other_time = (col("started").first().over("cell") - col("began")).abs() > pl.duration(minutes=1)
    # The clocks of two nodes may differ by 1 s: a visit on one may seem to start before an earlier visit on the other.
    previous_start = col("started").shift(1).over("cell", "rank") - pl.duration(seconds=1)
    rules = [
        Rule("visit", "more than before", ~_increases("visit", ("cell", "rank"))),
        Rule("started", "later than the visit before", col("started") < previous_start),
        Rule("duration", "less in sum than that of the run", _is_longer(_sum("duration", ("cell", "rank")), "run")),
        Rule("started", "the start of the run in the first visit", starts_at_other_time),
    ]
    return CheckedRows(VISITS, record[VISITS].join(runs, on="cell", how="left", maintain_order="left"), rules)


def _iteration_rules() -> Iterator[Rule]:
    previous_end = ((col("start") + col("iteration_time")) / _SLACK - _CLOCKS).shift(1).over(_VISIT)
    warm = pl.int_range(pl.len()).over(_VISIT) < col(_WARMUP)
    yield Rule("iteration", "more than before in the visit", ~_increases("iteration", _VISIT))
    yield Rule("start", "no less than the end of the iteration before", col("start") < previous_end)
    yield Rule("warmup", "true of the first iterations of a visit alone, as many as the cell's", col("warmup") != warm)


def _rules_within_visits(table: Table, record: Record) -> CheckedRows:
    visits = record[VISITS].select(*_VISIT, "measuring", "duration")
    cores = record[ENVIRONMENTS].select("cell", "rank", "cores_available")
    rows = record[table].join(visits, on=_VISIT, how="left").join(cores, on=("cell", "rank"), how="left")
    parts = pl.sum_horizontal(col(name).fill_nan(None) for name in _ITERATION_PARTS)
    is_first = col("iteration") == col("iteration").min().over(_VISIT)  # the first iteration includes a script's start
    cpus = (pl.when(is_first).then("duration").otherwise("iteration_time") + _TICK_ERROR) * col("cores_available")
    rules = [
        Rule("iteration_time", "no less than the sum of its parts", _is_longer(parts, "iteration_time")),
        Rule(
            "iteration_time", "no more in sum than its visit measured",
            _is_longer(_sum("iteration_time", _VISIT), "measuring"),
        ),
        *(Rule(name, "no more than the time of its CPUs", col(name) > cpus) for name in _CPU_COLUMNS),
    ]  # fmt: skip
    return CheckedRows(table, rows, rules)


def _layer_rules(record: Record) -> Iterator[CheckedRows]:
    layers = record[LAYERS]
    sums = [col(name).fill_nan(None).sum() for name in _PASSES]
    steps = layers.group_by(_STEP_KEY).agg(col("row").min(), *sums, *(col(name).max() for name in _MOMENTS))
    passes = [col(name).fill_nan(None).alias(f"{name}_pass") for name in _PASSES]
    iterations = record[ITERATIONS].select(*_STEP_KEY, "iteration_time", *passes)
    rules = [Rule(name, "no more in sum than its pass", _is_longer(col(name), f"{name}_pass")) for name in _PASSES]
    rules += [Rule(name, "within its iteration", _is_longer(col(name), "iteration_time")) for name in _MOMENTS]
    measured_runs = record[RUNS].filter(col("source") == "")  # moments of imported cells are modelled, not measured
    yield CheckedRows(LAYERS, steps.join(iterations, on=_STEP_KEY).join(measured_runs, on="cell", how="semi"), rules)
    sizes = layers.group_by("cell", "rank", "layer_index").agg(col("row").min(), col("gradient_bytes").unique())
    sizes_differ = col("gradient_bytes").list.len() > 1
    yield CheckedRows(LAYERS, sizes, [Rule("gradient_bytes", "the same of a layer in all iterations", sizes_differ)])


def _is_longer(seconds: pl.Expr, limit: str) -> pl.Expr:
    """Return whether a time exceeds the column `limit`, with an allowance for differences between two clocks."""
    return seconds > col(limit) * _SLACK + _CLOCKS


def _increases(name: str, group: Sequence[str]) -> pl.Expr:
    return (col(name) > col(name).shift(1).over(group)).fill_null(True)


def _sum(name: str, group: Sequence[str]) -> pl.Expr:
    return col(name).sum().over(group)

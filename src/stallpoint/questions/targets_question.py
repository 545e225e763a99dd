"""Which configuration reaches a target first on each number of workers, why, and where do more workers save nothing?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from stallpoint.base.measured import SERIES
from stallpoint.base.section import Absence, Finding, Section, TableRow, TextTable, about, interval_of
from stallpoint.base.stall import Verdict
from stallpoint.models.answers.time_to_accuracy import TARGET, TargetVerdict
from stallpoint.models.convergence.target_halves import HalvesOfTarget
from stallpoint.questions.study_tables import StudyTables
from stallpoint.questions.study_words import at_count, series, training, verdict_in_short
from stallpoint.text import listed, number

KIND = "time to target"
TARGET_CURVE = (*TARGET, "workers_per_node")
"""Columns of one target at several worker counts."""
FACTORS = ("slower", "more_steps", "longer_steps")
TEXT = (
    "Of each preset the recipe and mini-batch that were soonest. What takes longer than the fastest takes more steps, "
    "longer ones, or both: the product of the two. Predicted is a time from the steps at other mini-batches and "
    "iterations at other places."
)
STALLING_TABLE = "Where more workers save too little of the time to the target (predicted places included):"


@dataclass(frozen=True)
class ReachedAt:
    """Configurations that reached a target on the same number of workers."""

    ranks: int
    rows: Sequence[TableRow]
    """Rows of ``target_times``, the soonest first."""

    @cached_property
    def best(self) -> list[TableRow]:
        """The soonest configuration of each preset."""
        of_preset: dict[str, TableRow] = {}
        for row in self.rows:
            of_preset.setdefault(row["sync"], row)
        return list(of_preset.values())

    @cached_property
    def indistinguishable(self) -> list[TableRow]:
        """Rows not distinguishable from the soonest row. Of each other preset, only the best row is considered."""
        sync = self.best[0]["sync"]
        shown = (row for row in self.rows if row["sync"] == sync or any(row is one for one in self.best))
        return [row for row in shown if row["verdict"] == TargetVerdict.NOT_DISTINGUISHABLE]

    @property
    def indistinguishable_in_words(self) -> list[str]:
        """Names of the `indistinguishable` rows: the settings if the preset is the soonest row's, else the preset."""
        sync = self.best[0]["sync"]
        return [_settings(row) if row["sync"] == sync else str(row["sync"]) for row in self.indistinguishable]


@dataclass(frozen=True)
class Target:
    """A target that was reached."""

    stall: TableRow
    """Row of ``target_stalling`` for the training itself."""
    worker_counts: Sequence[ReachedAt]
    """Configurations by number of workers, rising."""


def targets(study: StudyTables) -> list[Target]:
    """Return the targets that were reached."""
    reached: dict[tuple[object, ...], dict[int, list[TableRow]]] = {}
    for row in sorted(study.rows("target_times"), key=lambda row: float(row["time"])):
        if row["time"] == row["time"]:
            key = tuple(row[name] for name in TARGET_CURVE)
            reached.setdefault(key, {}).setdefault(int(row["ranks"]), []).append(row)
    stalls = {tuple(row[name] for name in TARGET_CURVE): row for row in study.rows("target_stalling")}
    return [
        Target(stalls[key], [ReachedAt(ranks, rows) for ranks, rows in sorted(worker_counts.items())])
        for key, worker_counts in sorted(reached.items(), key=lambda item: tuple(map(str, item[0])))
    ]


def section(study: StudyTables) -> Section:
    """Return the section: a finding and a table for each target reached, and where more workers save too little."""
    found = targets(study)
    if not found:
        reason = "No training to a target reached it."
        return Section("targets", "Time to accuracy", "Answer", reason, absence=Absence.NOT_MEASURED)
    grids = (*map(_grid, found), *_stall_table(study), *_critical_batch_table(study))
    return Section("targets", "Time to accuracy", "Answer", TEXT, tuple(map(_finding, found)), grids)


def _finding(target: Target) -> Finding:
    verdict, ranks = Verdict(target.stall["verdict"]), float(target.stall["verdict_ranks"])
    many = len(target.worker_counts) > 1
    return Finding(
        KIND, _subject(target), summary(target), verdict if many else "", ranks if many and ranks else None,
        unit="workers" if many and ranks else "", evidence="measured",
        notes=(*larger_half_in_words(target), *lines(target)),
        about=about(target.stall), first=True,
    )  # fmt: skip


def _subject(target: Target) -> str:
    row = target.stall
    return f"{training(row)}, {100 * row['target']:.3g} % on {row['storage']}"


def summary(target: Target) -> str:
    """Return the soonest configuration at any worker count, and whether more workers save time.

    If others are not distinguishable from the soonest configuration, all are named, and none is called the soonest.
    """
    best = min(target.worker_counts, key=lambda at: float(at.best[0]["time"]))
    first, where = best.best[0], at_count(target.stall, best.ranks)
    stall = "" if len(target.worker_counts) < 2 else f"; reaching it {verdict_in_short(target.stall)}"
    if best.indistinguishable:
        configurations = listed([first["sync"], *best.indistinguishable_in_words])
        time_words = f"{first['sync']} in {number(first['time'], 2)} s with {_settings(first)}"
        return f"reached equally soon by {configurations} at {where}, as far as these runs tell ({time_words}){stall}"
    soonest_word = "" if _single_configuration(target) else "soonest "
    return f"reached {soonest_word}by {_configuration(first)} at {where}{stall}"


def lines(target: Target) -> Iterator[str]:
    """Yield a line for each worker count: the soonest configuration, and by which factors others take longer."""
    for at in () if _single_configuration(target) else target.worker_counts:
        first, *others = at.best
        slower = [one for one in others if one["verdict"] == TargetVerdict.SLOWER]
        parts = [f"{at_count(target.stall, at.ranks)}: {_configuration(first)}"]
        if at.indistinguishable:
            parts.append(f"not distinguishable: {', '.join(at.indistinguishable_in_words)}")
        parts += [_slowdown_in_words(one, first) for one in slower]
        yield "; ".join(parts)


def larger_half_in_words(target: Target) -> Iterator[str]:
    """Yield whether samples to the target or seconds per sample lose more from the fewest workers to the most."""
    few, many = target.worker_counts[0], target.worker_counts[-1]
    last = many.best[0]
    first = next((row for row in few.best if row["sync"] == last["sync"]), None)
    if first is None or few is many:
        return
    samples = float(first["steps"]) * first["batch"], float(last["steps"]) * last["batch"]
    found = HalvesOfTarget.of((few.ranks, many.ranks), samples, (float(first["time"]), float(last["time"])))
    yield f"{last['sync']}: {found.words()}; {found.half} lose more"


def _single_configuration(target: Target) -> bool:
    """Return whether there is nothing to compare: a single preset reached the target, on a single number of workers."""
    return [len(at.best) for at in target.worker_counts] == [1]


def _configuration(row: TableRow) -> str:
    return f"{row['sync']}, {_settings(row)} ({number(row['time'], 2)} s)"


def _settings(row: TableRow) -> str:
    return f"{row['recipe']}, B = {row['batch']}"


def _slowdown_in_words(row: TableRow, first: TableRow) -> str:
    """Return the factors by which a row takes longer than `first`, and the row's recipe if `first` has another."""
    times = [f"× {number(row[name], 2)}" for name in FACTORS]
    settings = "" if _settings(row) == _settings(first) else f", {_settings(row)},"
    return f"{row['sync']}{settings} {times[0]} (steps {times[1]}, each {times[2]})"


def _grid(target: Target) -> TextTable:
    """Return the table of a target: by number of workers, the soonest row of each preset."""
    rows = [row for at in target.worker_counts for row in at.best]
    return TextTable.of({
        "workers": "ranks", "preset": "sync", "with": _settings, "time": interval_of("time", 1.0, " s"),
        "predicted": interval_of("predicted", 1.0, " s"),
        "over the fastest": _factor("slower"), "steps": _factor("more_steps"), "each step": _factor("longer_steps"),
        "verdict": "verdict",
    }, rows, f"{_subject(target)}: {summary(target)}", file="models/target_times.parquet")  # fmt: skip


def _factor(name: str) -> Callable[[TableRow], str]:
    return lambda row: "1" if row["verdict"] == TargetVerdict.FASTEST else interval_of(name)(row)


def _stall_table(study: StudyTables) -> Iterator[TextTable]:
    """Yield the table of where time to a target stalls, compared with where throughput stalls."""
    throughput = {curve.key: curve for curve in study.curves}
    if rows := study.rows("accuracy_stalling"):
        yield TextTable.of({
            "network": "network", "hardware": "hardware", "curve": series,
            "trained": lambda row: (
                f"{row['recipe']} to {number(row['target'])}, {row['steps_sync']}, {row['steps_storage']}"
            ),
            "time to the target": verdict_in_short,
            "throughput, measured": lambda row: verdict_in_short(throughput[tuple(row[name] for name in SERIES)]),
        }, rows, text=STALLING_TABLE, file="models/accuracy_stalling.parquet")  # fmt: skip


def _critical_batch_table(study: StudyTables) -> Iterator[TextTable]:
    """Yield the table of critical mini-batches. Mini-batches beyond them hardly save steps."""
    text = (
        "Up to the critical mini-batch a larger one mostly saves steps, beyond it, mostly costs samples; the noise "
        "scale is an estimate of it from the gradients."
    )
    if rows := study.rows("critical_batches"):
        yield TextTable.of({
            "network": "network", "storage": "storage", "preset": "sync",
            "workers": lambda row: str(row["ranks"] or "any"), "recipe": "recipe",
            "target": lambda row: number(row["target"]),
            "B that reached it": lambda row: (
                f"{row['batches']}, up to {row['largest_reaching']}" if row["batches"] else "none"
            ),
            "critical B": interval_of("critical_batch"), "noise": interval_of("noise_scale"),
        }, rows, text=text, file="models/critical_batches.parquet")  # fmt: skip

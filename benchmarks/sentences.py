"""What one study says and another contradicts: verdicts, largest losses, remedies and claims, sentence by sentence.

`python benchmarks/sentences.py OLD NEW` compares two studies by the folders of their results, and `... STUDY` two
studies of half of its visits each: what equal studies would not both say is not to be said. Intervals are compared by
`repeatability`; here what is stated without one counts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from stallpoint.base.measured import SERIES
from stallpoint.base.stall import Verdict
from stallpoint.models import fitting
from stallpoint.models.answers.causes import LossVerdict
from stallpoint.models.answers.remedies import RemedyVerdict
from stallpoint.questions.claims.claim_files import claim_files, read_claims
from stallpoint.questions.claims.facts import facts
from stallpoint.questions.claims.judge import FAILS, HOLDS, judge, rows
from stallpoint.questions.claims.quantity import Evidence
from stallpoint.records.tables import CAUSES, CLAIMS, MODEL_TABLES, REMEDIES, STALLING, TARGET_STALLING, TIDY_TABLES
from stallpoint.study.configuration import PAPERS

SHIPPED = sorted(map(str, (Path(__file__).parents[1] / "resources/claims").glob("*.yaml")))


class Statements(NamedTuple):
    """What a table states: one sentence for each key."""

    key: tuple[str, ...]
    said: str
    """Column with what is said."""
    opposed: frozenset[str]
    """Two words that contradict each other; without any, all that differ do."""
    of: tuple[str, str] = ("", "")
    """Column and value of the rows that state something; all where empty."""


STALLS = frozenset((Verdict.STALLS, Verdict.SCALES))
STATED: Mapping[str, Statements] = {
    STALLING.name: Statements(tuple(SERIES), "verdict", STALLS),
    TARGET_STALLING.name: Statements(
        ("network", "hardware", "storage", "target", "workers_per_node"), "verdict", STALLS
    ),
    CAUSES.name: Statements(
        (*SERIES, "ranks", "basis"), "cause", frozenset(), ("verdict", LossVerdict.DOMINANT)
    ),
    REMEDIES.name: Statements(
        (*SERIES, "remedy"), "verdict",
        frozenset((RemedyVerdict.HELPS, RemedyVerdict.NO_GAIN)),
    ),
    CLAIMS.name: Statements(("claim",), "verdict", frozenset((HOLDS, FAILS))),
}  # fmt: skip


class Compared(NamedTuple):
    """Statements of one table that both studies make."""

    table: str
    both: int
    contradictions: list[str]


def compared(old: Mapping[str, pd.DataFrame], new: Mapping[str, pd.DataFrame]) -> Iterator[Compared]:
    """Compare what each table states: how many sentences both say, and those that contradict each other."""
    for name, stated in STATED.items():
        if name in old and name in new:
            pairs = _said(old[name], stated).merge(_said(new[name], stated), on=list(stated.key), suffixes=("", "_new"))
            against = [
                f"{name}: {', '.join(str(row[part]) for part in stated.key)}: {one} | {other}"
                for row, one, other in zip(
                    pairs.to_dict("records"), pairs[stated.said], pairs[f"{stated.said}_new"], strict=True
                )
                if one != other and (not stated.opposed or {one, other} == stated.opposed)
            ]
            yield Compared(name, len(pairs), against)


def _said(frame: pd.DataFrame, stated: Statements) -> pd.DataFrame:
    column, value = stated.of
    rows_of = frame[frame[column] == value] if column else frame
    return rows_of[[*stated.key, stated.said]].drop_duplicates(list(stated.key))


def tables_of(results: Path) -> dict[str, pd.DataFrame]:
    """Return the stated tables of a study."""
    files = [*(results / "models" / f"{name}.parquet" for name in STATED), results / f"{CLAIMS.name}.parquet"]
    return {file.stem: pd.read_parquet(file) for file in files if file.exists()}


def halves(results: Path) -> list[dict[str, pd.DataFrame]]:
    """Return the stated tables of two studies of half the visits each, the even and the odd ones."""
    tidy = {table.name: pd.read_parquet(results / "tables" / f"{table.name}.parquet") for table in TIDY_TABLES}
    predicted = pd.read_parquet(results / "models" / "predictions.parquet")
    claims = read_claims(claim_files([PAPERS], SHIPPED))
    found = []
    for half in (0, 1):
        of_half = {name: _of_half(frame, half) for name, frame in tidy.items()}
        fitted = fitting.fit(of_half, nodes=sorted({int(nodes) for nodes in predicted["nodes"]}))
        tables = {table.name: fitted[table.name] for table in MODEL_TABLES}
        judged = rows(judge(claims, Evidence({**of_half, **tables}, facts(of_half["runs"]))))
        found.append({**tables, CLAIMS.name: pd.DataFrame(judged)})
    return found


def _of_half(frame: pd.DataFrame, half: int) -> pd.DataFrame:
    return frame[frame["visit"].isna() | (frame["visit"] % 2 == half)] if "visit" in frame else frame


def in_words(found: Iterator[Compared]) -> Iterator[str]:
    """Yield a line for each table, and each contradiction."""
    for one in found:
        yield f"{one.table}: {len(one.contradictions)} of {one.both} sentences contradict"
        yield from (f"  {words}" for words in one.contradictions)


if __name__ == "__main__":
    studies = list(map(Path, sys.argv[1:]))
    first, second = map(tables_of, studies) if len(studies) == 2 else halves(*studies)
    print(*in_words(compared(first, second)), sep="\n")

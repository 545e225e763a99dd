"""Every prefix of every public series, asked for each further count up to four times its largest: laws beside peers.

As a program: ``held_out.py FOLDER...`` with tables as `public_tables` reads them. Prefixes have two counts or more. For
each source the errors of what is given (median / 90th percentile), the part in the 90 % interval, its width, what
carrying the last rate forward would have given where laws refuse, and the errors of each peer on all questions; a peer
that is better in a paired bootstrap (90 %) has an asterisk. No law, prior or weight is fitted to these tables.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import public_tables
from scaling_laws import carried, three_terms

from stallpoint.models.scaling.extrapolation import fit

FURTHEST = 4
MAX_SERIES = 60
"""Series of a source that are asked, drawn at random."""
_PREFIXES = {2, 3, 4, 6, 8, 12}
TARGET = "wanted: older tables given >= 90 %, <= 5 / 15 %, 85-97 % inside; H100 <= 10 / 40 %; no peer with an asterisk"


def power(known: pd.Series, workers: int) -> float:
    slope = np.polyfit(np.log(known.index.to_numpy(float)), np.log(known.to_numpy()), 1)
    return float(np.exp(np.polyval(slope, np.log(workers))))


PEERS = {"carried forward": carried, "power law": power, "A/n + B + C·n": three_terms}


def sources(tables: Mapping[str, pd.DataFrame]) -> Iterator[tuple[str, pd.DataFrame]]:
    """Tables by source, each series once; models of the H100 table are sources of their own."""
    for name, rates in tables.items():
        if "known" in name or name == "ultrascale-h100":
            continue
        yield name, rates
    if (h100 := tables.get("ultrascale-h100, b known")) is not None:
        for model, rows in h100.groupby(h100["series"].str.split().str[0]):
            yield f"H100, {model}", rows


def asked(rates: pd.DataFrame) -> pd.DataFrame:
    """One row for each question: the true rate, ours, and those of the peers."""
    measured = rates.dropna(subset=["samples_per_second"])
    series = [rows for _, rows in measured.groupby("series") if rows["workers"].nunique() > 2]
    drawn = np.random.default_rng(0).permutation(len(series))[:MAX_SERIES]
    return pd.DataFrame([row for place in sorted(drawn) for row in _of_series(series[place])])


def _of_series(rows: pd.DataFrame) -> Iterator[dict[str, object]]:
    medians = rows.groupby("workers")["samples_per_second"].median()
    for count in _PREFIXES & set(range(2, len(medians))):
        known = medians.iloc[:count]
        reach = FURTHEST * known.index[-1]
        wanted = [n for n in medians.index[count:] if n <= reach]
        if not wanted:
            continue
        hidden = rows[rows["workers"] <= reach].copy()
        hidden.loc[hidden["workers"] > known.index[-1], "samples_per_second"] = np.nan
        (fitted,) = fit(hidden)
        predicted = fitted.predict().set_index("workers").loc[wanted]
        for n in wanted:
            peers = {name: peer(known, n) for name, peer in PEERS.items()}
            yield {"series": rows["series"].iloc[0], "true": medians[n], **predicted.loc[n].to_dict(), **peers}


def row(name: str, questions: pd.DataFrame) -> str:
    given = questions[questions["predicted"].notna()]
    inside = ((given["lower"] <= given["true"]) & (given["true"] <= given["upper"])).mean()
    refused = questions[questions["predicted"].isna()]
    peers = ", ".join(f"{peer} {_errors(_off(questions, peer))}{'*' if _better(given, peer) else ''}" for peer in PEERS)
    return (
        f"  {name:<26} {len(given):>3} of {len(questions):>3} given, {_errors(_off(given, 'predicted'))}, {inside:.0%} "
        f"inside, width {(given['upper'] / given['lower'] - 1).median():.0%}; refused, carried forward: "
        f"{_errors(_off(refused, 'carried forward'))}; of all: {peers}"
    )


def _off(questions: pd.DataFrame, column: str) -> pd.Series:
    return (questions[column] / questions["true"] - 1).abs()


def _errors(off: pd.Series) -> str:
    return f"{off.median():.1%} / {off.quantile(0.9):.1%}" if len(off) else "none"


def _better(given: pd.DataFrame, peer: str) -> bool:
    """Whether a peer's mean log error is smaller on what is given, series resampled."""
    more = np.log(given["predicted"] / given["true"]).abs() - np.log(given[peer] / given["true"]).abs()
    of_series = more.groupby(given["series"]).mean().to_numpy()
    draws = np.random.default_rng(1).integers(len(of_series), size=(2000, len(of_series)))
    return bool(len(of_series) >= 8 and np.quantile(of_series[draws].mean(1), 0.05) > 0)


if __name__ == "__main__":
    for source, table in sources(public_tables.tables([Path(name) for name in sys.argv[1:]])):
        questions_of_it = asked(table)
        if len(questions_of_it):
            print(row(source, questions_of_it), flush=True)
    print(TARGET)

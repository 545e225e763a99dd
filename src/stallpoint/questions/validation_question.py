"""How well is training on more workers predicted from training on fewer?"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from stallpoint.base.section import Absence, Section, TextTable
from stallpoint.questions.study_tables import StudyTables

TITLE = "Validation"
HEAD = (
    "network", "preset", "workers", "predicted / measured", "median |error|", "90th percentile",
    "mean: computing + communication + rest", "intervals that hold it",
)  # fmt: skip
PUBLISHED_ERRORS = "Shi et al. (2018): 9.4 %, 4.7 % and 4.6 % on average (AlexNet, GoogLeNet, ResNet-50; GPUs)"
"""Published mean errors of predictions (section V-D)."""
ALL_ROWS = "all"


def section(study: StudyTables) -> Section:
    """Return the section: errors of predictions from fewer workers, compared with published ones."""
    validation = study.tables["validation"]
    found = tuple(map(tuple, rows(validation)))
    if not found:
        reason = "No training on more workers than the fewest two counts was measured."
        return Section("validation-table", TITLE, "How sure", reason, absence=Absence.NOT_MEASURED)
    known = ", ".join(sorted(set(validation["calibration"])))
    words = f"Predicted with the training on {known} workers known, and nothing of the training on more."
    text = " ".join(filter(None, (words, repeatability(validation), f"{PUBLISHED_ERRORS}.")))
    about = tuple({} if network == ALL_ROWS else {"network": network} for network, *_ in found)
    grid = TextTable(HEAD, found, about=about, file="models/validation.parquet")
    return Section("validation-table", TITLE, "How sure", text, grids=(grid,))


def repeatability(validation: pd.DataFrame) -> str:
    """Return in words how much equal jobs differ, as a scale for errors; empty if no job was repeated.

    If two of k equal jobs differ by a share d of their time, the mean of all k is off by d / sqrt(2k).
    """
    repeated_cells = validation[validation["repeats_differ"].notna()]
    if repeated_cells.empty:
        return ""
    spread = repeated_cells["repeats_differ"]
    noise = spread / (2 * repeated_cells["repeats"]) ** 0.5
    return (
        f"Two jobs that measured the same differ by {spread.median():.1%} (median) and {spread.quantile(0.9):.1%} "
        f"(90th percentile; {len(repeated_cells)} of {len(validation)} combinations were repeated): by chance alone "
        f"a prediction without error would be off by about {noise.median():.1%} and {noise.quantile(0.9):.1%}."
    )


def rows(validation: pd.DataFrame) -> Iterator[list[str]]:
    """Yield the rows of the table: for each network and preset, then for each network, then for all networks."""
    for (network, sync), part in validation.groupby(["network", "sync"]):
        yield [str(network), str(sync), *_numbers(part)]
    for network, part in validation.groupby("network"):
        yield [str(network), ALL_ROWS, *_numbers(part)]
    if not validation.empty:
        yield [ALL_ROWS, ALL_ROWS, *_numbers(validation)]


def _numbers(part: pd.DataFrame) -> list[str]:
    error = part["error"].abs()
    means = [part[f"error_{of}"].mean() for of in ("computing", "communication")]
    means.append(part["error"].mean() - sum(means))
    ratios = (1 + part["error"]).groupby(part["ranks"]).median()
    return [
        ", ".join(str(ranks) for ranks in ratios.index),
        ", ".join(f"{ratio:.2f}" for ratio in ratios),
        f"{error.median():.1%}",
        f"{error.quantile(0.9):.1%}",
        " ".join(f"{mean:+.1%}" for mean in means),
        f"{int(part['covered'].sum())} of {len(part)}",
    ]

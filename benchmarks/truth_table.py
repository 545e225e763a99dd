"""The figures of the benchmark ``truth`` as tables, for docs/truth.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from paired import Figure
from planted import NOISES

CARRIED = "at 64"
"""Of quantities that are carried to 64 nodes."""
RANGE = re.compile(r"([\d.]+)-([\d.]+)")


def tables(figures: Sequence[Figure]) -> Iterator[str]:
    """Lines of Markdown: quantities by noise, then by case, then what is carried to 64 nodes by law."""
    noises = [noise.name for noise in NOISES]
    by_noise = [one for one in figures if one.candidate in noises]
    yield from _table("quantity", by_noise, lambda one: one.quantity, lambda one: one.candidate)
    yield ""
    others = [one for one in figures if one.candidate not in noises]
    cases = [one for one in others if not one.quantity.endswith(CARRIED)]
    yield from _by_case(cases)
    laws = [one for one in others if one.quantity.endswith(CARRIED)]
    yield from _table("law", laws, lambda one: one.candidate, lambda one: one.quantity)


def _by_case(figures: Sequence[Figure]) -> Iterator[str]:
    """A table for all cases that have the same quantities."""
    cases: dict[str, dict[str, Figure]] = {}
    for one in figures:
        cases.setdefault(one.candidate, {})[one.quantity] = one
    for quantities in dict.fromkeys(map(tuple, cases.values())):
        yield "| " + " | ".join(["case", *quantities]) + " |"
        yield "| " + " | ".join(["---"] * (len(quantities) + 1)) + " |"
        for case, found in cases.items():
            if tuple(found) == quantities:
                yield "| " + " | ".join([case, *map(_number, found.values())]) + " |"
        yield ""


def _table(
    corner: str, figures: Sequence[Figure], row: Callable[[Figure], str], column: Callable[[Figure], str]
) -> Iterator[str]:
    columns = list(dict.fromkeys(map(column, figures)))
    found = {(row(one), column(one)): one for one in figures}
    yield "| " + " | ".join([corner, *columns, "wanted"]) + " |"
    yield "| " + " | ".join(["---"] * (len(columns) + 2)) + " |"
    for name in dict.fromkeys(map(row, figures)):
        cells = [found.get((name, label)) for label in columns]
        wanted = next((one.wanted for one in cells if one and one.wanted), "")
        yield "| " + " | ".join([name, *(_number(one) if one else "" for one in cells), wanted]) + " |"


def _number(figure: Figure) -> str:
    """Bold where what is wanted lies outside its interval."""
    text = f"{figure.value:.0f}" if figure.value >= 2 else f"{figure.value:.2f}"
    return text if _met(figure) else f"**{text}**"


def _met(figure: Figure) -> bool:
    if not figure.wanted:
        return True
    if between := RANGE.fullmatch(figure.wanted):
        # Intervals that hold more often than wanted are wide, not wrong.
        return figure.high >= float(between[1])
    number = float(figure.wanted.lstrip("<>= "))
    if figure.wanted.startswith("<="):
        return figure.low <= number
    return figure.high >= number if figure.wanted.startswith(">=") else figure.low <= number <= figure.high

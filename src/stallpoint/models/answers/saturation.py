"""At how many workers a storage gives no more: where doubling the workers that read at once stops paying."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np

from stallpoint.models.answers.stall_probability import Stall
from stallpoint.models.terms.data import ReadTogether
from stallpoint.study.workers import counts, curves_of, place_of

FEWEST_VISITS = 2
"""To a place, without which nothing is decided: one visit does not tell how far visits lie apart."""
UNDECIDED = "undecided"


def table(readings: Iterable[ReadTogether], nodes: Collection[int], threshold: float) -> list[dict[str, object]]:
    """Rows of the saturation table, for every curve of places that fills nodes.

    A storage saturates where twice the workers read less than `threshold` more samples in the same time, all of them
    together. Nothing is decided where a place was visited once. `nodes` are looked at beside those measured.
    """
    return [row for reading in readings for row in _rows(reading, nodes, threshold)]


def _rows(reading: ReadTogether, nodes: Collection[int], threshold: float) -> Iterator[dict[str, object]]:
    for per_node, places in curves_of(reading.visits).items():
        measured = [n * workers for n, workers in places]
        seldom = [n * workers for n, workers in places if reading.visits[n, workers] < FEWEST_VISITS]
        ranks = sorted({*counts(nodes, per_node), *measured})
        rates = {n: n / reading.slowdown(place_of(n, per_node)) for n in ranks}
        gains = {n: np.log(rates[2 * n] / rates[n])[1:] for n in ranks if 2 * n in rates}
        stall = Stall.of(gains, max(ranks), threshold)
        verdict, where = (UNDECIDED, 0) if seldom else stall.verdict
        ends = (stall.columns[f"stall_ranks{end}"] for end in ("", "_low", "_high"))
        yield {
            "hardware": reading.hardware,
            "storage": reading.storage,
            "readers": reading.readers,
            "workers_per_node": per_node,
            **dict(zip(("saturation_ranks", "saturation_ranks_low", "saturation_ranks_high"), ends, strict=True)),
            "reached": stall.reached,
            "verdict": {"stalls": "saturates", "scales": "keeps pace"}.get(verdict, verdict),
            "verdict_ranks": where,
            "deciding": _deciding(verdict, seldom or stall.deciding),
            "largest_measured": max(measured),
            "largest_considered": max(ranks),
        }


def _deciding(verdict: str, ranks: Sequence[int]) -> str:
    """What would decide it; empty where that is decided."""
    if verdict != UNDECIDED:
        return ""
    return f"more visits to {', '.join(map(str, ranks))} workers" if ranks else "a number of workers and its double"

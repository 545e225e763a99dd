"""Words for curves and counts, for several questions."""

from __future__ import annotations

from stallpoint.base.section import TableRow
from stallpoint.base.stall import VERDICTS, Verdict
from stallpoint.questions.study_tables import CurveRows
from stallpoint.study.workers import placement_in_words
from stallpoint.text import in_round_words, interval, number

MIN_PROBABILITY = 0.01
"""Probability below which a number of workers is not named, and draws have no resolution."""
MAX_DECIDING_SECONDS = 3600
"""Seconds of further visits above which no number is given: the gain is too close to the threshold."""


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 node``, ``2 nodes``, ``2 processes``."""
    plural_ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number} {noun}{plural_ending}"


def at_count(curve: TableRow, ranks: int | str) -> str:
    """Return a worker count in words: ``n = 4``, or if nodes have several workers, ``8 workers (2 nodes)``."""
    per_node = int(curve["workers_per_node"])
    if per_node == 1:
        return f"n = {ranks}"
    return f"{ranks} workers" if isinstance(ranks, str) else placement_in_words(ranks, per_node)


def workers_in_words(curve: TableRow, ranks: int) -> str:
    """Return the placement: ``2 nodes``, ``8 workers (2 nodes)``, or ``2 processes`` of one machine."""
    return placement_in_words(ranks, int(curve["workers_per_node"]), is_one_machine=bool(curve["one_machine"]))


def series(curve: TableRow) -> str:
    """Return the name that a curve has among the curves of its network and hardware."""
    per_node = f", {curve['workers_per_node']} workers per node" if curve["workers_per_node"] > 1 else ""
    return (
        f"{curve['scaling']}, {batch_in_words(curve)}, {curve['sync']}, {prefetch_in_words(curve)}, "
        f"{curve['storage']}{per_node}"
    )


def training(curve: TableRow) -> str:
    """Return what was trained: ``alexnet on cpu``."""
    return f"{curve['network']} on {curve['hardware']}"


def batch_in_words(curve: TableRow) -> str:
    """Return the mini-batch that is constant along a curve: ``B = 256`` of all workers, or ``b = 64`` of each."""
    return f"{'B' if curve['scaling'] == 'strong' else 'b'} = {curve['batch']}"


def prefetch_in_words(curve: TableRow) -> str:
    """Return how many mini-batches are read ahead: ``prefetch 2`` or ``no prefetch``."""
    return f"prefetch {curve['prefetch']}" if curve["prefetch"] else "no prefetch"


def verdict_in_short(row: TableRow) -> str:
    """Return the verdict in a few words, without reasons."""
    verdict, ranks = Verdict(row["verdict"]), int(row["verdict_ranks"])
    return f"{VERDICTS[verdict]} {at_count(row, ranks)}" if ranks and verdict in VERDICTS else verdict


def probability_in_words(probability: float) -> str:
    """Return a probability, ``P = 0.58``, with as many digits as random draws can resolve."""
    return "P > 0.99" if probability > 1 - MIN_PROBABILITY else f"P = {probability:.2f}"


def chance_in_words(probability: float) -> str:
    """Return a probability in per cent, or ``over 99 %``, as random draws resolve no more."""
    return "over 99 %" if probability > 1 - MIN_PROBABILITY else f"{100 * probability:.0f} %"


def stall_interval(curve: CurveRows) -> str:
    """Return the counts at which a curve stalls with 90 % probability: ``4 (2–8)``, or one count: ``4 (95 % sure)``."""
    stall = curve.estimate("stall_ranks")
    if stall is None or stall.low < stall.high:
        return interval(stall)
    stall_probability = curve.stall("known").get(int(stall.value))
    return number(stall.value) + (f" ({chance_in_words(stall_probability)} sure)" if stall_probability else "")


def probabilities_in_words(curve: CurveRows, limit: int | None = None) -> str:
    """Return stalling points with their measured probabilities, the likeliest first: "stalls at n = 8: 60 %, ..."."""
    stall = curve.stall("measured")
    ranked_counts = sorted(stall, key=lambda ranks: -stall[ranks])[:limit]
    return ", ".join(
        f"{'no stall up to' if ranks == max(stall) else 'stalls at'} {at_count(curve, ranks)}: "
        f"{chance_in_words(stall[ranks])}"
        for ranks in ranked_counts
        if stall[ranks] >= MIN_PROBABILITY
    )


def deciding_in_words(curve: CurveRows) -> str:
    """Return ``some 4 min of visits to 1, 2 workers``. The minutes are omitted if they are not known."""
    visits = f"visits to {', '.join(map(str, curve.deciding_ranks))} workers"
    seconds = float(curve["deciding_time"])
    if seconds != seconds:
        return visits
    return f"{'more than an hour' if seconds > MAX_DECIDING_SECONDS else f'some {in_round_words(seconds)}'} of {visits}"


def why_no_verdict(largest: int) -> str:
    """Return why measurements up to `largest` workers give no verdict."""
    if not largest:
        return "no iteration was measured: they are composed of the times of their layers"
    return "only n = 1 was measured" if largest == 1 else "no worker count was measured together with its double"


def percent(row: TableRow, name: str) -> str:
    """Return a row's share `name` with its interval, in per cent."""
    return interval(row.estimate(name), 100, " %")

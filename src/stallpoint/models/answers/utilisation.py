"""Utilisation: what training achieves over the ratings of its hardware.

*Model FLOP/s utilisation* (Chowdhery et al., PaLM, 2022, section 4.1): the operations that the network needs, without
recomputed ones, over the rated operations of the device. *Share of a link* (the 9.6 % of Shi et al., 2018, section
V-C2): the bytes of gradients over the time of communication and the rated bandwidth.

*Traffic*: the bytes of training data and of gradients that an iteration moves (Keuper & Pfreundt, 2016, section IV-A).

As in the paper, one of n workers is a parameter server. The n - 1 others send their gradients and receive the weights,
2(n-1) times the size of the model. Images are moved once in each epoch, gradients in each iteration. For the paper's
AlexNet these are 100 x 150 GB = 15 TB of images, and 450,000 x 250 MB x 2(n-1) of gradients.

*Comparisons*: measured points that differ in one choice only: preset, storage or prefetch.

Different jobs measured the two points, so their replicates are independent. The ratio is taken in each replicate, which
gives a narrower interval than dividing the ends of both intervals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import permutations

import numpy as np
import pandas as pd

from stallpoint.base.measured import Measured, Point
from stallpoint.base.statistics import Ensemble, columns, is_duration, unknown_ensemble
from stallpoint.models.answers.fitted import FittedStudy, Question, QuestionSettings
from stallpoint.models.terms.training_cells import Layers
from stallpoint.records.tables import COMPARISONS, TRAFFIC, UTILISATION

FLOPS_OF_PASSES = 6
"""Operations of an iteration per multiply-add of a forward pass; the backward pass takes twice as many."""
FLOPS, LINK = "flops", "link"
"""Ratings: FLOP/s of a worker's device, B/s of a node's link in one direction."""


def utilisation(fitted: FittedStudy) -> list[dict[str, object]]:
    """Return the rows of the utilisation table; NaN where a property of the network or a rated value is missing."""
    networks = fitted.reduced.training_cells.networks
    return [_utilisation_row(measured, networks, fitted.asked) for measured in fitted.points_by_curve]


def _utilisation_row(measured: Measured, networks: Mapping[str, Layers], asked: QuestionSettings) -> dict[str, object]:
    point, ratings = measured.point, asked.rated.get(measured.point.hardware, {})
    seconds = _duration_or_unknown(measured.parts.iteration_time)
    throughput = point.global_batch / seconds
    work = FLOPS_OF_PASSES * asked.multiply_adds.get(point.network, np.nan)
    flops = work * point.worker_batch / seconds
    sending = measured.parts.communication if point.nodes > 1 else seconds * np.nan
    sent_bytes = networks[point.network].gradient_bytes.sum() if point.network in networks else np.nan
    link_rate = sent_bytes / _duration_or_unknown(sending)
    return {
        **point.labels("global_batch", "worker_batch"),
        **columns("samples_per_second", throughput),
        **columns("flops", flops),
        **columns("flops_share", flops / ratings.get(FLOPS, np.nan)),
        **columns("link", link_rate),
        **columns("link_share", link_rate / ratings.get(LINK, np.nan)),
    }


def _duration_or_unknown(seconds: Ensemble) -> Ensemble:
    return seconds if is_duration(seconds) else unknown_ensemble()


def bytes_moved(
    points: Iterable[Measured], networks: Mapping[str, Layers], storage_reads: pd.DataFrame
) -> list[dict[str, object]]:
    """Return the rows of the traffic table; the bytes of a sample are those of the tidy table `storage_reads`."""
    sample = storage_reads.groupby(["hardware", "storage"])["bytes"].mean()
    return [
        _traffic_row(point, float(sample[point.hardware, point.storage]), networks[point.network])
        for point in (measured.point for measured in points)
        if point.ranks > 1 and (point.hardware, point.storage) in sample.index and point.network in networks
    ]


def _traffic_row(point: Point, sample_bytes: float, layers: Layers) -> dict[str, object]:
    return {
        **point.labels(),
        "data_bytes": round(point.global_batch * sample_bytes),
        "gradient_bytes": 2 * (point.ranks - 1) * int(layers.gradient_bytes.sum()),
    }


PAIR_AXES = ("storage", "sync", "prefetch")


def comparisons(points: Sequence[Measured]) -> list[dict[str, object]]:
    """Return the comparisons table's rows: every ordered pair of points that differ in exactly one of `PAIR_AXES`."""
    return [row for axis in PAIR_AXES for group in _groups_but_for(points, axis) for row in _pair_rows(axis, group)]


def _groups_but_for(points: Iterable[Measured], axis: str) -> Iterable[list[Measured]]:
    """Return groups of points that differ only in `axis`."""
    found: dict[tuple[str | int, ...], list[Measured]] = {}
    for measured in points:
        others = tuple(value for name, value in vars(measured.point).items() if name != axis)
        found.setdefault(others, []).append(measured)
    return found.values()


def _pair_rows(axis: str, group: Iterable[Measured]) -> Iterator[dict[str, object]]:
    for measured, other in permutations(group, 2):
        with np.errstate(divide="ignore", invalid="ignore"):
            throughput = other.parts.iteration_time / measured.parts.iteration_time
            exposed_ratio = measured.parts.exposed_communication / other.parts.exposed_communication
        is_single_worker = measured.point.ranks == 1
        yield {
            **measured.point.labels(),
            "axis": axis,
            "against": str(getattr(other.point, axis)),
            **columns("throughput", throughput),
            **columns("exposed", np.full_like(exposed_ratio, np.nan) if is_single_worker else exposed_ratio),
        }


QUESTIONS = (
    Question(UTILISATION, utilisation),
    Question(
        TRAFFIC,
        lambda fitted: bytes_moved(
            fitted.points_by_curve, fitted.reduced.training_cells.networks, fitted.tidy["storage_reads"]
        ),
    ),
    Question(COMPARISONS, lambda fitted: comparisons(fitted.communicating)),
)

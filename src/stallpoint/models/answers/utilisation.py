"""What training makes of what its hardware is rated for, and what an epoch costs.

Model FLOP/s utilisation as Chowdhery et al. define it (PaLM, 2022, section 4.1): the operations that the network needs,
recomputed ones not counted, over what the device is rated for. The share of a link's bandwidth as Shi et al. (2018)
count their 9.6 % in section V-C2: the gradients' bytes over the time of communication and the rated bandwidth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from stallpoint.models.base.measured import Measured
from stallpoint.models.base.statistics import Ensemble, columns, is_duration, unknown_ensemble
from stallpoint.models.terms.trainings import Layers

FLOPS_OF_PASSES = 6
"""Operations of an iteration for each multiply-add of a forward pass; the backward pass takes twice as many."""
IMAGENET = 1_281_167
"""Training images of ILSVRC-2012."""
FLOPS, LINK, POWER = "flops", "link", "power"
"""FLOP/s a worker's device is rated for, B/s a node's link is rated for in one direction, W a node draws."""


def table(
    points: Iterable[Measured],
    networks: Mapping[str, Layers],
    multiply_adds: Mapping[str, float],
    tokens: Mapping[str, int],
    rated: Mapping[str, Mapping[str, float]],
    epoch_samples: int,
) -> list[dict[str, object]]:
    """Rows of the utilisation table; quantities that lack a number of the network or a rated one are not numbers.

    `multiply_adds` are those of a sample's forward pass, by network, and `tokens` are what a sample is made of, where
    it is made of any; `rated` holds `FLOPS`, `LINK` and `POWER` by
    hardware.
    """
    return [
        _row(measured, networks, multiply_adds, tokens, rated.get(measured.point.hardware, {}), epoch_samples)
        for measured in points
    ]


def _row(
    measured: Measured,
    networks: Mapping[str, Layers],
    multiply_adds: Mapping[str, float],
    tokens: Mapping[str, int],
    rated: Mapping[str, float],
    epoch_samples: int,
) -> dict[str, object]:
    point = measured.point
    seconds = _possible(measured.parts.iteration_time)
    throughput = point.global_batch / seconds
    work = FLOPS_OF_PASSES * multiply_adds.get(point.network, np.nan)
    flops = work * point.worker_batch / seconds
    sending = measured.parts.communication if point.nodes > 1 else seconds * np.nan
    link = _gradient_bytes(point.network, networks) / _possible(sending)
    epoch = epoch_samples / throughput
    node_hours = epoch * point.nodes / 3600
    return {
        **point.labels("global_batch", "worker_batch"),
        **columns("samples_per_second", throughput),
        **columns("tokens_per_second", throughput * tokens.get(point.network, np.nan)),
        **columns("flops", flops),
        **columns("flops_share", flops / rated.get(FLOPS, np.nan)),
        **columns("link", link),
        **columns("link_share", link / rated.get(LINK, np.nan)),
        **columns("epoch_time", epoch),
        **columns("epoch_node_hours", node_hours),
        **columns("epoch_energy", node_hours * rated.get(POWER, np.nan) / 1000),
    }


def _gradient_bytes(network: str, networks: Mapping[str, Layers]) -> float:
    return float(networks[network].gradient_bytes.sum()) if network in networks else float("nan")


def _possible(seconds: Ensemble) -> Ensemble:
    """Times that can be; not numbers where any of them cannot."""
    return seconds if is_duration(seconds) else unknown_ensemble()

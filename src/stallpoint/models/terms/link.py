"""Training data and gradients over one network link: their times when both are under way.

A storage on the network (NFS, a parallel file system) is reached over the link that carries the gradients. The link is
shared fairly: each of the two gets half of it, or what it can use if that is less, and the other what is left
(max-min fairness, as TCP flows come near to; Bertsekas & Gallager, Data Networks, section 6.5.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stallpoint.models.base.statistics import Ensemble


@dataclass(frozen=True)
class Traffic:
    """Gradient traffic of one iteration on one node's link."""

    bandwidth: Ensemble
    """Bandwidth of the link, B/s, [1 + REPLICATES]."""
    gradient_bytes: Ensemble | float
    """Bytes in one direction, [1 + REPLICATES] where the law of the all-reduce is uncertain."""


def shared_seconds(isolated: Ensemble, read_bytes: npt.ArrayLike, traffic: Traffic) -> tuple[Ensemble, Ensemble]:
    """Return the seconds to read the data and to send the gradients if both begin at the same time.

    `isolated` is the time to read `read_bytes` over the free link. Together neither is faster than isolated, and the
    link never exceeds its bandwidth.
    """
    read_bytes, capacity = np.asarray(read_bytes, dtype=np.float64), traffic.bandwidth
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.minimum(np.where(isolated > 0, read_bytes / isolated, np.inf), capacity)
    share = np.minimum(rate, capacity / 2)
    remaining = capacity - share
    gradients = traffic.gradient_bytes / remaining
    with np.errstate(divide="ignore", invalid="ignore"):
        reading = np.where(share > 0, read_bytes / share, 0.0)
    read_first = reading <= gradients
    after_reading = reading + (traffic.gradient_bytes - remaining * reading) / capacity
    with np.errstate(divide="ignore", invalid="ignore"):
        after_gradients = gradients + np.where(rate > 0, (read_bytes - share * gradients) / rate, 0.0)
    data = np.where(read_first, reading, after_gradients)
    # Reading may take longer than its bytes need on the link: the link is then not the limit.
    return np.maximum(data, isolated), np.where(read_first, after_reading, gradients)

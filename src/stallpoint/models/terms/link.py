"""Training data and gradients over one network link: how long each takes when both are under way.

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
    """What the gradients of one iteration put on one node's link."""

    bandwidth: Ensemble
    """Bytes per second the link carries, [1 + REPLICATES]."""
    gradient_bytes: Ensemble | float
    """Bytes that pass in one direction, [1 + REPLICATES] where the law of the all-reduce is not certain."""


def together(alone: Ensemble, read_bytes: npt.ArrayLike, traffic: Traffic) -> tuple[Ensemble, Ensemble]:
    """Seconds until the data is read and until the gradients are through when both begin at once.

    `alone` is the time to read `read_bytes` with the link free. Together neither is faster than alone, and the link
    never carries more than its bandwidth.
    """
    read_bytes, capacity = np.asarray(read_bytes, dtype=np.float64), traffic.bandwidth
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.minimum(np.where(alone > 0, read_bytes / alone, np.inf), capacity)
    share = np.minimum(rate, capacity / 2)
    left = capacity - share
    gradients = traffic.gradient_bytes / left
    with np.errstate(divide="ignore", invalid="ignore"):
        reading = np.where(share > 0, read_bytes / share, 0.0)
    read_first = reading <= gradients
    after_reading = reading + (traffic.gradient_bytes - left * reading) / capacity
    with np.errstate(divide="ignore", invalid="ignore"):
        after_gradients = gradients + np.where(rate > 0, (read_bytes - share * gradients) / rate, 0.0)
    data = np.where(read_first, reading, after_gradients)
    # Reading alone may take longer than its bytes need: what is then slow is not the link.
    return np.maximum(data, alone), np.where(read_first, after_reading, gradients)

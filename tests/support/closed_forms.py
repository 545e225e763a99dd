"""The DAG model of synchronous SGD solved by hand for the steady state: Shi et al. 2018, eqs. (1)-(5).

The paper drops the model update t_u from eqs. (3)-(5). Here it is kept, as in eq. (2): no computing task
of the next iteration can begin before the update, so it adds to the computing side of the maximum.

Closed forms take numbers or arrays; layers are along the last axis, in forward order.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stallpoint.base.statistics import Reals
from stallpoint.models.taskgraph import gradients_ready


def naive_seconds(t_io: Reals, t_h2d: Reals, t_f: Reals, t_b: Reals, t_c: Reals, t_u: Reals) -> Reals:
    """Eqs. (1), where t_c = 0, and (2): nothing overlaps; t_iter = t_io + t_h2d + t_f + t_b + t_c + t_u."""
    return t_io + t_h2d + t_f + t_b + t_c + t_u


def input_overlapped_seconds(t_io: Reals, t_h2d: Reals, t_f: Reals, t_b: Reals, t_c_no: Reals, t_u: Reals) -> Reals:
    """Eqs. (3), where t_c^no = t_c, and (5), with the update: t_iter = max{t_io + t_h2d, t_f + t_b + t_c^no + t_u}."""
    return np.maximum(t_io + t_h2d, t_f + t_b + t_c_no + t_u)


def wfbp_seconds_by_start(
    t_io: Reals, t_h2d: Reals, t_f: Reals, t_b_last: Reals, start: Reals, t_c_first: Reals, t_u: Reals
) -> Reals:
    """Eq. (4), with the update: max{t_io + t_h2d, t_f + t_b^(L) + τ_c^(1) - τ_c^(L) + t_c^(1) + t_u}.

    `t_b_last` is t_b^(L), `start` holds τ_c of the layers in forward order, `t_c_first` is t_c^(1).
    """
    computing = t_f + t_b_last + start[..., 0] - start[..., -1] + t_c_first + t_u
    return np.maximum(t_io + t_h2d, computing)


def in_turn(ready: npt.ArrayLike, seconds: npt.ArrayLike) -> tuple[Reals, Reals]:
    """Start and end of messages [...] sent one after another, in their order, none before it is ready."""
    ready, seconds = np.broadcast_arrays(*map(np.asarray, (ready, seconds)))
    start = np.empty(ready.shape)
    free = np.zeros(ready.shape[:-1])
    for message in range(ready.shape[-1]):
        start[..., message] = np.maximum(free, ready[..., message])
        free = start[..., message] + seconds[..., message]
    return start, start + seconds


def all_reduces(backward: npt.ArrayLike, all_reduce: npt.ArrayLike, *, overlap: bool) -> tuple[Reals, Reals]:
    """Start and end of each layer's all-reduce since the start of the backward pass, during it (`overlap`) or after it.

    One after another, from the last layer to the first. During it, none goes before its gradients are complete
    (eq. (4)): τ_c^(l) = max(τ_c^(l+1) + t_c^(l+1), τ_b^(l) + t_b^(l)).
    """
    backward, all_reduce = np.broadcast_arrays(*map(np.asarray, (backward, all_reduce)))
    ready = gradients_ready(backward) if overlap else np.broadcast_to(backward.sum(-1, keepdims=True), backward.shape)
    start, end = in_turn(ready[..., ::-1], all_reduce[..., ::-1])
    return start[..., ::-1], end[..., ::-1]


def exposed_communication(backward: npt.ArrayLike, all_reduce: npt.ArrayLike) -> Reals:
    """t_c^no of eq. (5): time from the end of the backward pass to the end of the last all-reduce."""
    _, end = all_reduces(backward, all_reduce, overlap=True)
    return np.asarray(end[..., 0] - np.asarray(backward).sum(-1))


def iteration_seconds(
    t_io: Reals, t_h2d: Reals, t_f: Reals, t_b: Reals, t_c_no: Reals, t_u: Reals, *, prefetch: str
) -> Reals:
    """Iteration time of stallpoint's own training step.

    `t_c_no` is what of t_c the backward pass does not hide. `prefetch` says how far mini-batches are read ahead: not at
    all (``none``), into the ``host``'s memory or to the ``device``. In the host's memory the copy to the device waits
    for the update, as with CNTK, MXNet and TensorFlow (section IV-C), so t_h2d stands on the computing side.
    """
    if prefetch == "none":
        return naive_seconds(t_io, t_h2d, t_f, t_b, t_c_no, t_u)
    if prefetch == "host":
        t_f, t_h2d = t_h2d + t_f, np.zeros_like(t_h2d)
    return input_overlapped_seconds(t_io, t_h2d, t_f, t_b, t_c_no, t_u)

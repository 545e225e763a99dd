"""The backward pass and its messages when they slow each other down: rates change with what is under way.

Beside a message computing goes on at a fraction of its speed; a message takes longer beside the backward pass than
after it. Where neither is so this is `closed_forms.in_turn`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stallpoint.models.statistics import Reals


@dataclass(frozen=True)
class Contended:
    """Times since the start of the backward pass, s."""

    start: Reals
    """Of each message [..., messages]."""
    end: Reals
    backward: Reals
    """End of the backward pass [...]."""


def contended(backward: Reals, ready: Reals, beside: Reals, after: Reals, slower: Reals) -> Contended:
    """Messages [..., messages], one after another, each as soon as `ready` of the backward pass is done.

    `backward` [...] is how long the pass takes alone, and `slower` how many times as long beside each message. A
    message takes `beside` as long as the pass goes on and `after` when it has ended; when it ends in between, what is
    left of the message.
    """
    shape = np.broadcast_shapes(ready.shape, beside.shape, after.shape, slower.shape)
    ready, beside, after, slower = (np.broadcast_to(values, shape) for values in (ready, beside, after, slower))
    start, end = np.empty(shape), np.empty(shape)
    now, done = np.zeros(shape[:-1]), np.zeros(shape[:-1])
    ended = np.full(shape[:-1], np.nan)
    for message in range(shape[-1]):
        first = np.maximum(ready[..., message] - done, 0.0)
        start[..., message], done = now + first, done + first
        left = np.maximum(backward - done, 0.0)
        both = np.minimum(left * slower[..., message], beside[..., message])
        sent = np.divide(both, beside[..., message], out=np.ones(shape[:-1]), where=beside[..., message] > 0)
        sent = np.where(left > 0, sent, 0.0)
        ended = np.where(np.isnan(ended) & (sent < 1), start[..., message] + both, ended)
        done = np.where(sent < 1, backward, done + both / slower[..., message])
        now = start[..., message] + both + (1 - sent) * after[..., message]
        end[..., message] = now
    return Contended(start, end, np.where(np.isnan(ended), now + np.maximum(backward - done, 0.0), ended))

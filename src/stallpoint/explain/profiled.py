"""Training runs from profiler traces: the interpretation of a rank as rows of records.

A trace has collectives, but does not name the layers in each. A *bucket* stands for the layers of one: its backward
pass is the time from the previous collective to its own. The forward pass, and everything that no collective carries,
is one further layer, the first. The task graph of the records is then that of the traced iteration: each bucket is
reduced when it is ready.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from stallpoint.errors import InputError
from stallpoint.explain.clocks import min_seconds
from stallpoint.explain.layer_types import OTHER
from stallpoint.explain.rank import Rank
from stallpoint.explain.trace_collectives import ALL_REDUCE
from stallpoint.inputs import trace_formats
from stallpoint.inputs.layer_trace import TracedLayer

Places: TypeAlias = npt.NDArray[np.int64]
FIRST = "rest"
"""The layer that stands for what no message carries."""


@dataclass(frozen=True)
class ProfiledIteration:
    """One iteration of one rank; times in s."""

    start: float
    """Since the first one's, s."""
    phases: dict[str, float]
    """Columns of `tables.ITERATIONS`."""
    layers: dict[str, list[Any]]
    """Columns of `tables.LAYERS`."""


def profiled_rank(file: str, ranks: int | None = None) -> Rank:
    """Return the interpretation of the trace of one of `ranks` ranks (None: any number).

    `InputError` if a study cannot use it.
    """
    trace, *others = trace_formats.read(Path(file))
    if others:
        raise InputError(f"{file}: {1 + len(others)} ranks in one file; a study needs a file for each rank")
    if ranks is not None and trace.world_size != ranks and not (trace.world_size == 1 and trace.notes):
        raise InputError(f"{file}: {trace.world_size} worker(s), but its entry in the study says {ranks}")
    rank = Rank.of(trace)
    if rank is None:
        raise InputError(f"{file}: no iterations were found: no ProfilerStep, no Optimizer.step, and nothing periodic")
    if not np.isfinite(rank.phases.backward).any():
        raise InputError(
            f"{file}: it does not say where the backward pass begins; trace the CPU's activities too (autograd's "
            "operators)"
        )
    if rank.groups.sharded:
        raise InputError(
            f"{file}: its parameters are sharded; a study takes traces that all-reduce whole gradients; "
            f"stallpoint explain {file} predicts it"
        )
    return rank


def iterations(rank: Rank, file: str, *, isolated: bool = False) -> Iterator[ProfiledIteration]:
    """Yield the rank's iterations with the most common collectives; others do not belong to the same training.

    With `isolated`, collectives and exposed communication are removed.
    """
    collectives = _all_reduces(rank)
    usual = tuple(int(size) for size in rank.collectives.bytes[collectives[_usual(rank, collectives)]])
    if min(usual, default=0) < 0:
        raise InputError(f"{file}: it does not say how large its all-reduces are")
    for index in range(len(rank.iterations.seconds)):
        own = collectives[index]
        same = tuple(int(size) for size in rank.collectives.bytes[own]) == usual
        known = bool(np.isfinite(rank.phases.backward[index]))
        if same and known:
            begin = float(rank.iterations.begin[index] - rank.iterations.begin[0])
            found = ProfiledIteration(begin, _phases(rank, index), _layers(rank, index, own))
            yield _unsent(found) if isolated else found


def _unsent(of: ProfiledIteration) -> ProfiledIteration:
    layers, nothing = len(of.layers["layer"]), {"exposed_communication": 0.0, "communication": 0.0}
    rest = of.phases["iteration_time"] - of.phases["exposed_communication"]
    never = dict.fromkeys(("all_reduce_start", "all_reduce_end"), [None] * layers)
    unsent = {"bucket": [-1] * layers, "bucket_bytes": [0] * layers}
    return replace(of, phases=of.phases | nothing | {"iteration_time": rest}, layers=of.layers | never | unsent)


def layer_names(count: int) -> list[str]:
    """Return the names of the layers of a trace with `count` buckets, in forward order."""
    return [FIRST, *(f"bucket{number}" for number in range(count, 0, -1))]


def layers_of(file: str) -> list[TracedLayer]:
    """Return the layers of a trace and the bytes of their gradients, without times."""
    rank = profiled_rank(file)
    collectives = _all_reduces(rank)
    sizes = rank.collectives.bytes[collectives[_usual(rank, collectives)]]
    carried = zip(layer_names(len(sizes)), [0, *sizes[::-1].tolist()], strict=True)
    return [TracedLayer(name, 0.0, gradient_bytes=size) for name, size in carried]


def all_reduce_rows(ranks: Sequence[Rank]) -> dict[str, list[Any]]:
    """Columns of `tables.COLLECTIVES`: the first rank's all-reduces, as long as on the rank that waited least."""
    own = ranks[0]
    took = np.minimum(own.collectives.seconds, min_seconds([rank.collectives for rank in ranks])[0])
    places = np.concatenate(_all_reduces(own))
    sizes = own.collectives.bytes[places]
    return {
        "message_bytes": sizes.tolist(),
        "sample": samples(sizes.tolist(), Counter()),
        "seconds": took[places].tolist(),
    }


def samples(sizes: Sequence[int], seen: Counter[int]) -> list[int]:
    """Number the messages of each size, from those `seen` on, which these join."""
    found = []
    for size in sizes:
        found.append(seen[size])
        seen[size] += 1
    return found


def _all_reduces(rank: Rank) -> list[Places]:
    """Places of each iteration's all-reduces among all replicas, in the order of sending."""
    collectives = rank.collectives
    chosen = np.array([kind == ALL_REDUCE for kind in collectives.kind], np.bool_) & rank.groups.data
    order = np.argsort(collectives.index, kind="stable")
    return [order[(chosen & (collectives.iteration == at))[order]] for at in range(len(rank.iterations.seconds))]


def _usual(rank: Rank, collectives: Sequence[Places]) -> int:
    """Return the index of an iteration with the most common collectives."""
    sizes = [tuple(rank.collectives.bytes[own].tolist()) for own in collectives]
    return sizes.index(Counter(sizes).most_common(1)[0][0])


def _phases(rank: Rank, index: int) -> dict[str, float]:
    phases = rank.phases
    return {
        "data_wait": float(phases.data_wait[index]),
        "host_to_device": float(phases.copy[index]),
        "forward": float(phases.forward[index]),
        "backward": float(phases.backward[index]),
        "exposed_communication": float(phases.exposed[index]),
        "update": float(phases.update[index]),
        "iteration_time": float(rank.iterations.seconds[index]),
        "read": float(phases.data_wait[index]),
        "decode": 0.0,
        "communication": float(phases.communication[index]),
        "loss": float("nan"),
    }


def _layers(rank: Rank, index: int, own: Places) -> dict[str, list[Any]]:
    begin, collectives, phases = rank.iterations.begin[index], rank.collectives, rank.phases
    first, last = phases.backward_start[index], phases.backward_start[index] + phases.backward[index]
    ready = np.maximum.accumulate(np.clip(collectives.ready[own] - begin, first, last))
    backward = np.diff(np.concatenate([[first], ready, [last]]))
    count = len(own)
    start = collectives.start[own] - begin
    sizes = [0, *collectives.bytes[own][::-1].tolist()]
    return {
        "layer_index": list(range(count + 1)),
        "layer": layer_names(count),
        "layer_type": [OTHER] * (count + 1),
        "forward": [float(phases.forward[index]), *[0.0] * count],
        "backward": backward[::-1].tolist(),
        "gradient_bytes": sizes,
        "gradient_ready": [None, *ready[::-1].tolist()],
        "all_reduce_start": [None, *start[::-1].tolist()],
        "all_reduce_end": [None, *(start + collectives.seconds[own])[::-1].tolist()],
        "bucket": [-1, *range(count - 1, -1, -1)],
        "bucket_bytes": sizes,
    }

"""Optimal fusion of layers' gradients into buckets: MG-WFBP (Shi, Chu & Li 2019, "MG-WFBP: Efficient Data Communication
for Distributed Synchronous SGD Algorithms", INFOCOM).

In the authors' model a message of m bytes takes α + β·m. Messages are sent one after the other in the order of
back-propagation, each once all of its layers are complete. Merging two messages saves an α and costs waiting. The
paper's Algorithm 1 is greedy: a layer's message waits for the next layer if the wait is shorter than α. Here dynamic
programming finds the groups with which the last message ends as early as possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate


def merged_groups(sizes: Sequence[float], ready_times: Sequence[float], alpha: float, beta: float) -> list[list[int]]:
    """Return the layers' positions in groups for which the last message ends as early as possible.

    `sizes` [bytes] and `ready_times`, at which gradients are complete [s], are in the order of sending; `alpha` is
    in s, `beta` in s/B. Of several optimal plans, one with the fewest messages is returned.
    """
    bytes_before = [0.0, *accumulate(sizes)]
    complete_times = list(accumulate(ready_times, max))
    # Entry n plans the first n layers: end of the last message, number of messages, first layer of the last message.
    plans: list[tuple[float, int, int]] = [(0.0, 0, 0)]
    for n in range(1, len(sizes) + 1):
        plans.append(
            min(
                (
                    max(end, complete_times[n - 1]) + alpha + beta * (bytes_before[n] - bytes_before[first]),
                    messages + 1,
                    first,
                )
                for first, (end, messages, _) in enumerate(plans)
            )
        )
    groups: list[list[int]] = []
    last = len(sizes)
    while last:
        first = plans[last][2]
        groups.insert(0, list(range(first, last)))
        last = first
    return groups


def last_message_end(
    groups: Sequence[Sequence[int]], sizes: Sequence[float], ready_times: Sequence[float], alpha: float, beta: float
) -> float:
    """Return the time at which the last message ends in the authors' model, s."""
    time = 0.0
    for group in groups:
        complete_time = max(ready_times[layer] for layer in group)
        time = max(time, complete_time) + alpha + beta * sum(sizes[layer] for layer in group)
    return time

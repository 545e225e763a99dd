"""The loops of the engine over lanes that have one order of tasks: workers that differ, or scenarios.

Plain functions on arrays, for `compilation.kernel`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int32]
Reals = npt.NDArray[np.float64]


def replicate(
    sequence: Indices,
    first: Indices,
    before: Indices,
    lag: Indices,
    seconds: Reals,
    together: Reals,
    ends: Reals,
    ends_shared: Reals,
) -> None:
    """Fill `ends` [iterations kept, tasks, lanes] and `ends_shared` [iterations, shared tasks].

    Tasks are numbered as in `Template.tasks`: those of a worker first. `seconds` and `together` are the durations.
    """
    kept, owned, width = ends.shape
    iterations = ends_shared.shape[0]
    tops = np.zeros((2, owned))  # the latest lane of each task
    for i in range(iterations):
        for task in sequence:
            floor = 0.0
            rows = 0
            if task < owned:
                here = ends[i % kept, task]
            for at in range(first[task], first[task + 1]):
                source, of = before[at], i - lag[at]
                if of < 0:
                    continue
                if source >= owned:
                    floor = max(floor, ends_shared[of, source - owned])
                elif task >= owned:
                    floor = max(floor, tops[of % 2, source])
                else:
                    row = ends[of % kept, source]
                    if rows == 0:
                        single = row
                    elif rows == 1:
                        for lane in range(width):
                            here[lane] = max(row[lane], single[lane])
                    else:
                        for lane in range(width):
                            here[lane] = max(row[lane], here[lane])
                    rows += 1
            if task >= owned:
                ends_shared[i, task - owned] = floor + together[i % together.shape[0], task - owned]
                continue
            if rows == 0:
                here[:] = 0.0
            if rows != 1:
                single = here
            own = seconds[i % seconds.shape[0], task]
            top = 0.0
            for lane in range(width):
                end = max(single[lane], floor) + own[lane]
                here[lane] = end
                top = max(top, end)
            tops[i % 2, task] = top


def evaluate(
    row: Indices,
    left: Indices,
    right: Indices,
    ready_first: Indices,
    ready_cause: Indices,
    ready_seconds: Reals,
    own_first: Indices,
    own_cause: Indices,
    own_seconds: Reals,
    every: Indices,
    shift: Reals,
    rows: int,
    factors: Reals,
    out: Reals,
    start: int,
    stop: int,
) -> None:
    """The steps of a program (`what_if._Program`) for `factors` [causes, start:stop]; fills `out` there.

    Blocks of scenarios are small enough for the rows to stay in the nearest cache. The usual steps, what is ready
    for one cause and two causes of its own, are done in one go.
    """
    block, causes = min(512, stop - start), factors.shape[0]
    work = np.zeros((rows, block))
    given = np.zeros((causes, block))
    moved = np.zeros(block)
    latest = np.zeros(block)
    for begin in range(start, stop, block):
        width = min(block, stop - begin)
        for lane in range(block):
            moved[lane] = 0.0
            latest[lane] = 0.0
        for cause in range(causes):
            x, u = given[cause], shift[cause]
            for lane in range(width):
                x[lane] = factors[cause, begin + lane]
            for lane in range(block):
                moved[lane] += u * x[lane]
        for step in range(row.size):
            result = work[row[step]]
            ready_at, ready_end = ready_first[step], ready_first[step + 1]
            at, end = own_first[step], own_first[step + 1]
            if left[step] >= 0 and right[step] < 0 and ready_end - ready_at == 1 and end - at == 2:
                a, z, w = work[left[step]], given[ready_cause[ready_at]], ready_seconds[ready_at]
                x, y, u, v = given[own_cause[at]], given[own_cause[at + 1]], own_seconds[at], own_seconds[at + 1]
                for lane in range(block):
                    result[lane] = max(a[lane], w * z[lane]) + (u * x[lane] + v * y[lane])
            else:
                for lane in range(block):
                    result[lane] = 0.0
                for entry in range(ready_at, ready_end):
                    x, u = given[ready_cause[entry]], ready_seconds[entry]
                    for lane in range(block):
                        result[lane] += u * x[lane]
                for source in (left[step], right[step]):
                    if source >= 0:
                        a = work[source]
                        for lane in range(block):
                            result[lane] = max(result[lane], a[lane])
                for entry in range(at, end):
                    x, u = given[own_cause[entry]], own_seconds[entry]
                    for lane in range(block):
                        result[lane] += u * x[lane]
            if every[step] > 0:
                share = 1.0 / every[step]
                for lane in range(block):
                    latest[lane] = max(latest[lane], (result[lane] + moved[lane]) * share)
        for lane in range(width):
            out[begin + lane] = latest[lane]

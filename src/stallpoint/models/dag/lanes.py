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

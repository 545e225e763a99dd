"""Causes that were planted: how often a decisive verdict names another one.

On four workers an iteration loses 100 ms to one cause and 50 ms to the next, beside 250 ms of computing that scales.
Isolated times are measured by cells of their own, which scatter like all others. Then one rank of several lags by 100
ms in all iterations, and the others wait for it: how often intervals hold what that costs, and that nothing interferes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from judging import COVERAGE, Study, holds, shares
from paired import Figure
from planted import NOISES, Noise

from stallpoint.base.measured import TIMES, Measured, measured, step_rows
from stallpoint.models.answers.causes import LossVerdict, losses, verdicts
from stallpoint.models.iteration.curve_points import CurvePoints, Predicted
from stallpoint.models.terms.effects import CollectiveTimes, IsolatedTimes

CAUSES = ("shared hardware", "small matrices", "communication", "training data", "model update", "straggling")
EACH = 40
"""Studies of each cause."""
LOST, NEXT = 0.1, 0.05
"""s."""
WORKERS = 4
COMPUTE, DATA, UPDATE = 1.0, 0.02, 0.02
"""On one worker, s."""
LAGGING = (2, 4, 8)
"""Ranks, of which the last lags."""
STUDIES = 12
"""Of each number of them: reducing over ranks takes 0.2 s."""


def studies() -> Iterator[Study]:
    """How often a decisive verdict names another cause, and how often the right one, for each noise."""
    for noise in NOISES:
        yield partial(_study, noise)
        yield partial(_lagging, noise)


def _study(noise: Noise) -> Iterator[Figure]:
    """Of `EACH` studies with each cause as the dominant one: how many name another one, and how many name it."""
    wrong: list[bool] = []
    given: list[bool] = []
    for place, cause in enumerate(CAUSES):
        lost = {cause: LOST, CAUSES[(place + 1) % len(CAUSES)]: NEXT}
        for trial in range(EACH):
            found = judged(planted_curve(lost, noise, np.random.default_rng([2017, place, trial]), trial))
            named = [name for name, verdict in found.items() if verdict == LossVerdict.DOMINANT]
            wrong.append(bool(named) and named != [cause])
            given.append(named == [cause])
    yield from shares(noise.name, {"cause wrong": wrong, "cause given": given}, {"cause wrong": "<= 0.05"}, len(wrong))


def judged(curve: CurvePoints) -> dict[str, str]:
    """The verdict on each cause at `WORKERS`."""
    return verdicts(losses(curve, WORKERS), float(curve.at(WORKERS).parts.iteration_time[0]))


def planted_curve(lost: Mapping[str, float], noise: Noise, random: np.random.Generator, seed: int) -> CurvePoints:
    """A curve on one worker and on `WORKERS`, which have `lost` so much to each cause, s."""
    computing = COMPUTE / WORKERS + lost.get("small matrices", 0.0)
    several = {
        "compute": computing + lost.get("shared hardware", 0.0),
        "exposed_communication": lost.get("communication", 0.0),
        "data_wait": DATA / WORKERS + lost.get("training data", 0.0),
        "update": UPDATE / WORKERS + lost.get("model update", 0.0),
        "straggling": lost.get("straggling", 0.0),
    }
    one = {"compute": COMPUTE, "data_wait": DATA, "update": UPDATE}
    frames = [_cell(one, 1, "strong", noise, random), _cell(several, WORKERS, "strong", noise, random)]
    frames.append(_cell({"compute": computing}, 1, "compute", noise, random))
    return _curve(measured(pd.concat(frames), seed), WORKERS)


def _lagging(noise: Noise) -> Iterator[Figure]:
    """How often the interval of what a lagging rank costs holds `LOST`, and that of shared hardware holds nothing."""
    for ranks in LAGGING:
        held: dict[str, list[bool]] = {"straggling": [], "shared hardware": []}
        for trial in range(STUDIES):
            random = np.random.default_rng([2018, ranks, trial])
            lost = losses(lagging_curve(ranks, LOST, noise, random, trial), ranks)
            for cause, truth in zip(held, (LOST, 0.0), strict=True):
                held[cause].append(holds(lost[cause], truth))
        found = {f"one of {ranks} ranks lags: {cause} held": answers for cause, answers in held.items()}
        yield from shares(noise.name, found, dict.fromkeys(found, COVERAGE), STUDIES)


def lagging_curve(ranks: int, lag: float, noise: Noise, random: np.random.Generator, seed: int) -> CurvePoints:
    """A curve on one worker and on several, of which the last computes `lag` s longer than the others."""
    one = {"compute": COMPUTE, "data_wait": DATA, "update": UPDATE}
    frames = [
        _cell(one, 1, "strong", noise, random),
        _ranks(ranks, lag, noise, random),
        _cell({"compute": COMPUTE / ranks}, 1, "compute", noise, random),
    ]
    return _curve(measured(pd.concat(frames), seed), ranks)


def _ranks(ranks: int, lag: float, noise: Noise, random: np.random.Generator) -> pd.DataFrame:
    """Rows as `step_rows` makes them of those of every rank, each of which jitters as iterations do."""
    common = noise.factors(random)[..., None]
    computing = (
        common * COMPUTE / ranks * np.exp(noise.iterations * random.standard_normal((*common.shape[:-1], ranks)))
    )
    computing[..., -1:] += lag * common
    exposed = computing.max(-1, keepdims=True) - computing
    data, update = common * DATA / ranks, common * UPDATE / ranks
    repeat, visit, iteration, rank = np.indices(computing.shape).reshape(4, -1)
    in_order = (repeat * noise.of_job + visit) * noise.of_visit + iteration
    seconds = {
        "forward": computing / 3, "backward": 2 * computing / 3, "exposed_communication": exposed,
        "communication": exposed, "data_wait": data, "update": update,
        "iteration_time": computing + exposed + data + update,
    }  # fmt: skip
    times = {name: np.broadcast_to(of, computing.shape).ravel() for name, of in seconds.items()}
    rows = pd.DataFrame({
        "repeat": repeat + 1, "visit": visit + 1, "iteration": in_order, "rank": rank, "warmup": False,
        **dict.fromkeys((*TIMES, "read", "decode"), 0.0), **times, **_point(ranks, "strong"),
    })  # fmt: skip
    rows["cell"] = [f"strong/{ranks}/{at}" for at in rows["repeat"]]
    return step_rows(rows, rows.assign(layer_type="convolution"))


def _curve(points: list[Measured], workers: int) -> CurvePoints:
    """Of points on one worker and on `workers`, and of computing alone."""
    known = {(point.point.nodes, point.point.scaling): point for point in points}
    alone = known[1, "compute"].parts
    nothing = np.empty((1, 0))
    isolated = IsolatedTimes(
        alone.forward,
        alone.backward,
        alone.update,
        alone.matrix,
        alone.fully_connected,
        CollectiveTimes(nothing, nothing, 0),
    )
    there = {nodes: known[nodes, "strong"] for nodes in (1, workers)}
    return CurvePoints(there, {nodes: _predicted(point, isolated) for nodes, point in there.items()})


def _predicted(point: Measured, isolated: IsolatedTimes) -> Predicted:
    nothing = 0 * point.parts.iteration_time
    return Predicted(point.point, "eq. 2", "measured at b", point.parts, latency_share=nothing, isolated=isolated)


def _cell(
    parts: Mapping[str, float], nodes: int, scaling: str, noise: Noise, random: np.random.Generator
) -> pd.DataFrame:
    """Rows as `measured.step_rows` gives them; all of computing is convolutions."""
    factors = noise.factors(random)
    repeat, visit, iteration = np.indices(factors.shape).reshape(3, -1)
    computing = parts["compute"]
    times = dict.fromkeys((*TIMES, "matrix", "fully_connected"), 0.0)
    times |= {name: seconds for name, seconds in parts.items() if name in times}
    times |= {"forward": computing / 3, "backward": 2 * computing / 3, "matrix": computing}
    times["iteration_time"] = sum(parts.values())
    seconds = {name: value * factors.ravel() for name, value in times.items()}
    frame = pd.DataFrame({"repeat": repeat + 1, "visit": visit + 1, "iteration": iteration, **seconds})
    return frame.assign(**_point(nodes, scaling), cell=f"{scaling}/{nodes}")


def _point(nodes: int, scaling: str) -> dict[str, Any]:
    return {
        "network": "made-up", "hardware": "cpu", "storage": "local", "scaling": scaling, "sync": "preset",
        "prefetch": 0, "batch": 32, "workers_per_node": 1, "nodes": nodes, "ranks": nodes, "global_batch": 32,
        "worker_batch": 32 // nodes,
    }  # fmt: skip

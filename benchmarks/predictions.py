"""One prediction: two iterations of a network like ResNet-50 (161 layers, a message for each) on unequal workers.

The slowest of 1,024 workers, drawn anew in each of 301 replicates, for whom all others wait; and workers written out
one by one beside a discrete-event simulation of the same job, which must end at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np
import simpy
from paired import Figure, figure, interleaved, report

from stallpoint.base.statistics import REPLICATES
from stallpoint.models.taskgraph import Costs, MessageTimes, iteration_tasks, schedule
from stallpoint.strategies.presets import PRESETS

LAYERS, WORKERS, FEW = 161, 1024, 16
WFBP = PRESETS["wfbp"].preset


def benchmark(scratch: Path, count: int) -> tuple[list, list[str]]:
    """Timings, figures and lines to print; `scratch` is not used."""
    random = np.random.default_rng(2018)
    forward, backward, messages = random.uniform(0.5e-3, 2e-3, (3, LAYERS))
    pace = 1 + random.exponential(0.02, (1 + REPLICATES, WORKERS))
    one = [_costs(factor, forward, backward, messages) for factor in pace[0, :FEW]]

    def slowest() -> float:
        begin = perf_counter()
        costs = _costs(pace.max(axis=1), forward, backward, messages, beside=1.5, slows=1.2)
        schedule(iteration_tasks(costs, WFBP, prefetch=True))
        return perf_counter() - begin

    def written_out() -> float:
        begin = perf_counter()
        assert np.isclose(_ours(one), expected)
        return perf_counter() - begin

    def simulated() -> float:
        begin = perf_counter()
        assert np.isclose(_simpy(one), expected)
        return perf_counter() - begin

    expected = _ours(one)
    prediction = interleaved("predictions", {"prediction": slowest}, count)
    figures: list[Figure] = [
        figure(
            "predictions", f"{WORKERS:,} unequal workers, {1 + REPLICATES} replicates", "seconds",
            [timing.seconds for timing in prediction], "<= 2",
        )
    ]  # fmt: skip
    name = f"{FEW} workers, each by itself"
    timings = interleaved("predictions", {name: written_out, "simpy": simulated}, count)
    ratios, lines = report(timings, name, "simpy", "")
    return [*prediction, *timings, *figures, *ratios], [*lines, figures[0].line(" s")]


def _costs(
    factor: float | np.ndarray, forward: np.ndarray, backward: np.ndarray, messages: np.ndarray,
    *, beside: float = 1.0, slows: float = 1.0,
) -> Costs:  # fmt: skip
    sent = [
        MessageTimes((layer,), messages[layer], beside * messages[layer], slows) for layer in reversed(range(LAYERS))
    ]
    return Costs(
        0.0, 0.0, [factor * seconds for seconds in forward], [factor * seconds for seconds in backward], sent, 1e-3
    )


def _ours(workers: Sequence[Costs]) -> float:
    return float(schedule(iteration_tasks(workers, WFBP, prefetch=True)).end["update of 1"])


def _simpy(workers: Sequence[Costs]) -> float:
    """A process for each worker and one for the network; events where they meet."""
    world = simpy.Environment()
    updated = [world.event() for _ in range(2)]
    ready = [[[world.event() for _ in workers] for _ in range(LAYERS)] for _ in range(2)]

    def worker(place: int) -> Iterator[simpy.Event]:
        costs = workers[place]
        for number in range(2):
            for seconds in costs.forward:
                yield world.timeout(float(seconds))
            for layer in reversed(range(LAYERS)):
                yield world.timeout(float(costs.backward[layer]))
                ready[number][layer][place].succeed()
            yield updated[number]

    def network() -> Iterator[simpy.Event]:
        for number in range(2):
            for message in workers[0].collectives:
                yield world.all_of(ready[number][message.layers[0]])
                yield world.timeout(float(message.seconds))
            yield world.timeout(float(workers[0].update))
            updated[number].succeed()

    for place in range(len(workers)):
        world.process(worker(place))
    world.process(network())
    world.run()
    return float(world.now)

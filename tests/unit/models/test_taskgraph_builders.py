"""Fig. 1 of Shi et al. (2018), task by task, and the presets as task graphs."""

import numpy as np
import pytest
from drawing import timeline
from hypothesis import given
from hypothesis import strategies as st

from stallpoint.errors import InputError
from stallpoint.models.taskgraph import (
    Costs,
    Kind,
    MessageTimes,
    Task,
    TaskSchedule,
    gradients_ready,
    iteration_tasks,
    schedule,
)
from stallpoint.strategies.buckets import buckets
from stallpoint.strategies.presets import PRESETS, Preset

SENT = [MessageTimes((layer,), seconds) for layer, seconds in ((2, 3), (1, 3), (0, 1))]
COSTS = Costs(read=2, copy=1, forward=(1, 1, 1), backward=(2, 2, 2), collectives=SENT, update=1)
GPUS = 4


def figure_1(preset: str, prefetch: bool = True) -> tuple[list[Task], TaskSchedule]:
    tasks = iteration_tasks([COSTS] * GPUS, PRESETS[preset].preset, prefetch=prefetch)
    return tasks, schedule(tasks)


def one_gpu(tasks: list[Task], found: TaskSchedule) -> list[str]:
    """Lines of the timeline that GPU 0 takes part in, four columns a second."""
    rows = [task for task in tasks if not task.stream[-1].isdigit() or task.stream.endswith(" 0")]
    return timeline(rows, found, columns_per_second=4).splitlines()


def span(found: TaskSchedule, name: str) -> tuple[float, float]:
    return float(found.start[name]), float(found.end[name])


def numbered() -> dict[str, str]:
    """The paper's names of tasks, T0 to T43, and ours."""
    groups = ["read of 0", "copy of 0", "forward 1 of 0", "forward 2 of 0", "forward 3 of 0"]
    groups += ["backward 3 of 0", "backward 2 of 0", "backward 1 of 0"]
    ours = [f"{group} on {gpu}" for group in groups for gpu in range(GPUS)]
    ours += ["all-reduce 3 of 0", "all-reduce 2 of 0", "all-reduce 1 of 0", "update of 0"]
    ours += [f"{group} on {gpu}" for group in ("read of 1", "copy of 1") for gpu in range(GPUS)]
    return {f"T{number}": name for number, name in enumerate(ours)}


def test_figure_1_task_by_task() -> None:
    tasks, found = figure_1("wfbp")
    paper = numbered()
    number = {name: t for t, name in paper.items()}
    named = {task.name: task for task in tasks}
    assert one_gpu([task for task in tasks if task.name in number], found) == [
        # s               0       2   3   4   5   6       8       10      12      14  15  16  17
        "disk 0            [r     ][r     ]",
        "copy stream 0             [c ]                                                    [c ]",
        "compute stream 0              [f1][f2][f3][b3    ][b2    ][b1    ]",
        "network                                           [a3        ][a2        ][a1]",
        "update                                                                        [u ]",
    ]

    def before(t: int) -> set[str]:
        return {number[name] for name in named[paper[f"T{t}"]].after}

    for gpu in range(GPUS):
        assert before(gpu) == set()
        for t in range(4, 32, 4):  # copy, forward 1-3, backward 3-1: each after the last of the same GPU
            assert before(t + gpu) == {f"T{t + gpu - 4}"}
        assert before(36 + gpu) == {f"T{gpu}"}  # the next mini-batch: right after this one (section IV-C)
        assert before(40 + gpu) == {f"T{36 + gpu}", "T35"}  # MXNet, TensorFlow, CNTK copy after the update
    assert before(32) == {"T20", "T21", "T22", "T23"}
    assert before(33) == {"T24", "T25", "T26", "T27"}
    assert before(34) == {"T28", "T29", "T30", "T31"}
    assert before(35) == {"T32", "T33", "T34"}

    kinds = [named[paper[f"T{t}"]].kind for t in range(44)]
    inputs, communicating = {*range(8), *range(36, 44)}, {32, 33, 34}
    assert kinds == [
        Kind.INPUT if t in inputs else Kind.MESSAGE if t in communicating else Kind.COMPUTE for t in range(44)
    ]

    spans = [(0, 2)] * 4 + [(2, 3)] * 4 + [(3, 4)] * 4 + [(4, 5)] * 4 + [(5, 6)] * 4
    spans += [(6, 8)] * 4 + [(8, 10)] * 4 + [(10, 12)] * 4 + [(8, 11), (11, 14), (14, 15), (15, 16)]
    spans += [(2, 4)] * 4 + [(16, 17)] * 4
    assert [span(found, paper[f"T{t}"]) for t in range(44)] == spans


def test_figure_1_naive() -> None:
    tasks, found = figure_1("naive", prefetch=False)
    assert one_gpu(tasks, found)[:2] == [
        # s               0       2   3
        "disk 0            [r     ]" + " " * 72 + "[r     ]",
        "copy stream 0             [c ]" + " " * 76 + "[c ]",
    ]
    assert [span(found, f"all-reduce {layer} of 0") for layer in (3, 2, 1)] == [(12, 15), (15, 18), (18, 19)]
    assert span(found, "update of 0") == (19, 20)
    assert span(found, "read of 1 on 0") == (20, 22)


def test_figure_1_with_the_copy_ahead() -> None:
    tasks, found = figure_1("caffe-mpi")
    assert one_gpu(tasks, found)[:2] == [
        # s               0       2   3       5   6      Caffe-MPI copies T40-T43 right after T36-T39
        "disk 0            [r     ]    [r     ]",
        "copy stream 0             [c ]        [c ]",
    ]
    assert found.start["forward 1 of 1 on 0"] == found.end["update of 0"] == 16


@given(st.sampled_from(sorted(PRESETS)), st.booleans(), st.lists(st.integers(0, 40 * 2**20), min_size=1, max_size=8))
def test_every_preset_is_a_job(name: str, prefetch: bool, gradient_bytes: list[int]) -> None:
    preset = PRESETS[name].preset
    layers = len(gradient_bytes)
    sent = [MessageTimes(tuple(m), 1.0) for m in buckets(preset, gradient_bytes)]
    tasks = iteration_tasks(Costs(1, 1, [1] * layers, [1] * layers, sent, 1), preset, prefetch=prefetch)
    named = {task.name: task for task in tasks}
    assert len(named) == 2 * (2 + 2 * layers + len(sent) + 1)
    for message in sent:
        first = min(message.layers) + 1 if preset.overlaps else 1
        assert named[f"{message.name} of 1"].after == (f"backward {first} of 1",)
    assert ("update of 0" in named["read of 1"].after) == (not prefetch)
    assert ("update of 0" in named["copy of 1"].after) == (prefetch and not preset.device_prefetch)
    assert "update of 0" in named["forward 1 of 1"].after


def test_fused_layers_wait_for_each_other() -> None:
    costs = Costs(0, 0, (1, 1, 1), (2, 2, 2), [MessageTimes((2, 1), 4), MessageTimes((0,), 1)], 1)
    found = schedule(iteration_tasks(costs, PRESETS["horovod"].preset, prefetch=True))
    #  compute  [f f f][b3 ][b2 ][b1 ]          [u]
    #  network                   [3..2     ][1]
    assert span(found, "all-reduce 3..2 of 0") == (7, 11)
    assert span(found, "all-reduce 1 of 0") == (11, 12)


factors = st.lists(st.floats(1.0, 3.0), min_size=2, max_size=5)


@given(factors, st.sampled_from(["naive", "wfbp"]))
def test_all_wait_for_the_slowest_of_unequal_workers(slower: list[float], name: str) -> None:
    def costs(factor: float) -> Costs:
        return Costs(0.5, 0.1, factor * np.ones(3), factor * 2 * np.ones(3), SENT, 0.3)

    preset = PRESETS[name].preset
    whole, slowest = (
        schedule(iteration_tasks(of, preset, prefetch=True)) for of in (list(map(costs, slower)), costs(max(slower)))
    )
    assert whole.end["update of 1"] == pytest.approx(slowest.end["update of 1"])


def test_gradients_are_complete_from_the_last_layer_on() -> None:
    assert gradients_ready([1.0, 2.0, 4.0]).tolist() == [7, 6, 4]


def test_wrong_costs_are_refused() -> None:
    with pytest.raises(InputError, match="an iteration has no forward or no backward pass"):
        iteration_tasks(Costs(1, 1, [], [1.0], (), 1), Preset(), prefetch=True)
    with pytest.raises(InputError, match=r"a message has layers \(3,\); give positions from 0 to 0"):
        iteration_tasks(Costs(1, 1, [1], [1], [MessageTimes((3,), 1)], 1), Preset(), prefetch=True)


@pytest.mark.parametrize("start", ["layer-ready", "after-backward"])
def test_passes_wait_for_what_split_layers_take(start: str) -> None:
    #  time      0   2  3   5  5.5 6.5 7.5 8  11   13     17     21
    #  compute   [f1 ]<g>[f2]<g>[f3][b3]<s>[b2]<s >[b1    ]             layer 3 is the loss, which takes what 2 gives
    #  network                                            [1     ]
    costs = Costs(
        read=0, copy=0, forward=(2, 2, 1), backward=(4, 3, 1), collectives=[MessageTimes((0,), 4)], update=0,
        gathered={1: (1, 2), 2: (0.5, 0.5)},
    )  # fmt: skip
    preset = Preset(sharding="outputs", start=start)
    found = schedule(iteration_tasks(costs, preset, prefetch=True))
    passes = 2 + 1 + 2 + 0.5 + 1 + 1 + 0.5 + 3 + 2 + 4
    assert span(found, "all-gather 2 of 0") == (2, 3)
    assert span(found, "reduce-scatter 2 of 0") == (passes - 6, passes - 4)
    assert span(found, "all-reduce 1 of 0") == (passes, passes + 4), "of the first layer, behind its backward pass"
    assert float(found.end["update of 0"]) == passes + 4

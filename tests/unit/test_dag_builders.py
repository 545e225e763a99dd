"""Fig. 1 of Shi et al. (2018), task by task, and the presets as jobs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallpoint.errors import InputError
from stallpoint.messages import messages
from stallpoint.models.dag import Costs, Kind, Message, Span, Stage, Task, by_layer, s_sgd, schedule, timeline
from stallpoint.presets import PRESETS, Preset

COSTS = Costs(read=2, copy=1, forward=(1, 1, 1), backward=(2, 2, 2), messages=by_layer((1, 3, 3)), update=1)
GPUS = 4


def figure_1(preset: str, prefetch: bool = True) -> tuple[list[Task], dict[str, Span]]:
    tasks = s_sgd(COSTS, PRESETS[preset].preset, prefetch=prefetch).written_out(GPUS, iterations=2)
    return tasks, schedule(tasks)


def one_gpu(tasks: list[Task], spans: dict[str, Span]) -> list[str]:
    """Lines of the timeline that GPU 0 takes part in, four columns a second."""
    rows = [task for task in tasks if not task.resource[-1].isdigit() or task.resource.endswith(" 0")]
    return timeline(rows, spans, columns_per_second=4).splitlines()


def numbered() -> dict[str, str]:
    """The paper's names of tasks, T0 to T43, and ours."""
    groups = ["read of 0", "copy of 0", "forward 1 of 0", "forward 2 of 0", "forward 3 of 0"]
    groups += ["backward 3 of 0", "backward 2 of 0", "backward 1 of 0"]
    ours = [f"{group} on {gpu}" for group in groups for gpu in range(GPUS)]
    ours += ["all-reduce 3 of 0", "all-reduce 2 of 0", "all-reduce 1 of 0", "update of 0"]
    ours += [f"{group} on {gpu}" for group in ("read of 1", "copy of 1") for gpu in range(GPUS)]
    return {f"T{number}": name for number, name in enumerate(ours)}


def test_figure_1_task_by_task() -> None:
    tasks, spans = figure_1("wfbp")
    paper = numbered()
    number = {name: t for t, name in paper.items()}
    named = {task.name: task for task in tasks}
    assert one_gpu([task for task in tasks if task.name in number], spans) == [
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
    communicating = {*range(8), 32, 33, 34, *range(36, 44)}
    assert kinds == [Kind.COMMUNICATION if t in communicating else Kind.COMPUTE for t in range(44)]

    starts = [(0, 2)] * 4 + [(2, 3)] * 4 + [(3, 4)] * 4 + [(4, 5)] * 4 + [(5, 6)] * 4
    starts += [(6, 8)] * 4 + [(8, 10)] * 4 + [(10, 12)] * 4 + [(8, 11), (11, 14), (14, 15), (15, 16)]
    starts += [(2, 4)] * 4 + [(16, 17)] * 4
    assert [spans[paper[f"T{t}"]] for t in range(44)] == [Span(*span) for span in starts]


def test_figure_1_naive() -> None:
    tasks, spans = figure_1("naive", prefetch=False)
    assert one_gpu(tasks, spans)[:2] == [
        # s               0       2   3
        "disk 0            [r     ]" + " " * 72 + "[r     ]",
        "copy stream 0             [c ]" + " " * 76 + "[c ]",
    ]
    assert [spans[f"all-reduce {layer} of 0"] for layer in (3, 2, 1)] == [Span(12, 15), Span(15, 18), Span(18, 19)]
    assert spans["update of 0"] == Span(19, 20)
    assert spans["read of 1 on 0"] == Span(20, 22)


def test_figure_1_with_the_copy_ahead() -> None:
    tasks, spans = figure_1("caffe-mpi")
    assert one_gpu(tasks, spans)[:2] == [
        # s               0       2   3       5   6      Caffe-MPI copies T40-T43 right after T36-T39
        "disk 0            [r     ]    [r     ]",
        "copy stream 0             [c ]        [c ]",
    ]
    assert spans["forward 1 of 1 on 0"].start == spans["update of 0"].end == 16


@settings(deadline=None)
@given(st.sampled_from(sorted(PRESETS)), st.booleans(), st.lists(st.integers(0, 40 * 2**20), min_size=1, max_size=8))
def test_every_preset_is_a_job(name: str, prefetch: bool, gradient_bytes: list[int]) -> None:
    preset = PRESETS[name].preset
    layers = len(gradient_bytes)
    sent = [Message(tuple(m), (Stage("network", 1.0),)) for m in messages(preset, gradient_bytes)]
    template = s_sgd(Costs(1, 1, [1] * layers, [1] * layers, sent, 1), preset, prefetch=prefetch)
    assert template.order is not None
    assert len(template.shared) == len(sent) + 1
    for message, task in zip(sent, template.shared, strict=False):
        first = min(message.layers) + 1 if preset.start == "layer-ready" else 1
        assert task.after == (f"backward {first}",)
    assert ("update", "read" if not prefetch else "forward 1") in template.carried
    assert (("update", "copy") in template.carried) == (prefetch and not preset.device_prefetch)


def test_fused_layers_wait_for_each_other() -> None:
    sent = [Message((2, 1), (Stage("network", 4),)), Message((0,), (Stage("network", 1),))]
    costs = Costs(0, 0, (1, 1, 1), (2, 2, 2), sent, 1)
    spans = schedule(s_sgd(costs, PRESETS["horovod"].preset, prefetch=True).written_out(2, 1))
    #  compute  [f f f][b3 ][b2 ][b1 ]          [u]
    #  network                   [3..2     ][1]
    assert spans["all-reduce 3..2 of 0"] == Span(7, 11)
    assert spans["all-reduce 1 of 0"] == Span(11, 12)


def test_wrong_costs_are_refused() -> None:
    with pytest.raises(InputError, match="1 layers forward, 2 backward"):
        s_sgd(Costs(1, 1, [1], [1, 1], (), 1), Preset(), prefetch=True)
    with pytest.raises(InputError, match="0 layers forward"):
        s_sgd(Costs(1, 1, [], [], (), 1), Preset(), prefetch=True)
    with pytest.raises(InputError, match=r"a message of layers \(3,\)"):
        s_sgd(Costs(1, 1, [1], [1], [Message((3,), (Stage("network", 1),))], 1), Preset(), prefetch=True)

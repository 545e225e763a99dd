from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallpoint.errors import InputError
from stallpoint.models.dag import Costs, Kind, Stage, Structure, Task, Template, builders, by_layer, s_sgd, schedule
from stallpoint.presets import PRESETS, Preset

C, N = Kind.COMPUTE, Kind.COMMUNICATION
names = st.sampled_from(sorted(PRESETS))


def layered(layers: int = 3) -> Costs:
    return Costs(2, 1, [1] * layers, [2] * layers, by_layer([1, 3, 3][:layers]), 1)


@settings(deadline=None, max_examples=60)
@given(names, st.booleans(), st.integers(1, 4), st.integers(1, 4), st.integers(0, 2**32))
def test_lanes_the_graph_written_out_and_the_named_tasks_agree(
    name: str, prefetch: bool, workers: int, iterations: int, seed: int
) -> None:
    template = s_sgd(layered(), PRESETS[name].preset, prefetch=prefetch)
    assert template.order is not None
    random = np.random.default_rng(seed)
    worker = random.random((iterations, len(template.worker), workers))
    shared = random.random((iterations, len(template.shared)))
    ends = template.run(worker, shared, iterations=iterations)
    flat = template.graph(worker, shared, iterations=iterations)
    expected = flat.run().end.reshape(iterations, -1)
    assert expected[:, workers * len(template.worker) :].tolist() == ends.shared.tolist()
    assert expected[:, : workers * len(template.worker)].tolist() == np.moveaxis(ends.worker, 1, 2).reshape(
        iterations, -1
    ).tolist()  # fmt: skip

    tasks = template.written_out(workers, iterations)
    named = [
        Task(task.name, task.kind, seconds, task.resource, task.after)
        for task, seconds in zip(tasks, flat.duration, strict=True)
    ]
    assert [span.end for span in schedule(named).values()] == expected.reshape(-1).tolist()
    last = template.run(worker, shared, iterations=iterations, keep=False)
    assert last.worker.tolist() == ends.worker[-2:].tolist()


def test_equal_workers_are_one_lane() -> None:
    template = s_sgd(layered(), PRESETS["wfbp"].preset, prefetch=True)
    one = template.run(iterations=3)
    seconds = np.array([task.duration for task in template.worker])
    many = template.run(np.repeat(seconds[None, :, None], 64, axis=2), iterations=3)
    assert many.shared.tolist() == one.shared.tolist()
    assert (many.worker == one.worker).all()


def test_workers_on_one_file_server_queue() -> None:
    #  server     [read 0][read 1][read 2]
    #  compute 0          [ f ]
    #  compute 1                  [ f ]
    #  compute 2                          [ f ]
    template = Template(
        [Task("read", N, 2, "server"), Task("f", C, 1, "cpu", ("read",))], [], (), frozenset({"server"})
    )
    assert template.order is None
    with pytest.raises(InputError, match="workers queue for server"):
        Structure(template, np.ones((1, 2)))
    ends = template.run(np.array([[[2.0] * 3, [1.0] * 3]]), iterations=1)
    assert ends.worker[0].tolist() == [[2, 4, 6], [3, 5, 7]]
    assert [span.end for span in schedule(template.written_out(3, 1)).values()] == [2, 3, 4, 5, 6, 7]


def test_a_node_link_used_on_the_way_up_and_down_has_no_fixed_order() -> None:
    # Whether the last layers' gradients come down before the first layers' go up depends on the times.
    def messages(across: float) -> list[builders.Message]:
        stages = (Stage("node link", 1), Stage("network", across), Stage("node link", 1))
        return [builders.Message((layer,), stages) for layer in (1, 0)]

    template = s_sgd(Costs(0, 0, [1, 1], [1, 4], messages(1), 0), PRESETS["wfbp"].preset, prefetch=True)
    assert template.order is None
    #  compute    [f1][f2][b2            ][b1]
    #  node link                          [ 2][ 1]  [2 down][1 down]
    #  network                                [2 ][1 ]
    fast = schedule(template.written_out(1, 1))
    assert fast["all-reduce 2, stage 3 of 0"].end == 9
    assert fast["update of 0"].end == 10
    ends = template.run(iterations=3)
    assert ends.shared[0].max() == 10
    assert template.run(iterations=3, keep=False).worker.tolist() == ends.worker[-2:].tolist()


def test_urgent_messages_go_first_on_lanes_too() -> None:
    #  compute    [b3][b2][b1]
    #  network        [ 3        ][1  ][2  ]     layer 1 is needed first (Jayarajan et al. 2019, P3)
    template = s_sgd(Costs(0, 0, [0] * 3, [1] * 3, by_layer([1, 1, 3]), 0), Preset(), prefetch=True)
    urgent = [replace(task, priority=float(place)) for place, task in zip((3, 2, 1, 9), template.shared, strict=True)]
    template = replace(template, shared=urgent)
    assert template.order is None
    expected = schedule(template.written_out(2, 2))
    assert [expected[f"all-reduce {n} of 0"].start for n in (3, 1, 2)] == [1, 4, 5]
    seconds = np.array([[[task.duration] * 2 for task in template.worker]])
    ends = template.run(seconds, iterations=2).shared
    assert ends[1].tolist() == [expected[f"{task.name} of 1"].end for task in template.shared]


def test_an_unfit_template_is_refused() -> None:
    with pytest.raises(InputError, match="same name"):
        Template([Task("a", C, 1, "x"), Task("a", C, 1, "x")], [])
    with pytest.raises(InputError, match="edge b -> a names a task that does not exist"):
        Template([Task("a", C, 1, "x", ("b",))], [])
    with pytest.raises(InputError, match="cycle"):
        Template([Task("a", C, 1, "x", ("b",)), Task("b", C, 1, "x", ("a",))], []).run(iterations=1)
    template = Template([Task("a", C, 1, "x")], [Task("s", C, 1, "y", ("a",))])
    for wrong, message in (
        ({"iterations": 0}, "at least one is needed"),
        ({"worker": np.zeros((1, 2, 3)), "iterations": 1}, "there are 1 worker tasks"),
        ({"worker": np.zeros((1, 1, 0)), "iterations": 1}, "no worker"),
        ({"worker": np.full((1, 1, 1), np.nan), "iterations": 1}, "a number >= 0"),
        ({"shared": np.zeros((2, 1)), "iterations": 3}, "shared durations for 2 of 3 iterations"),
    ):
        with pytest.raises(InputError, match=message):
            template.run(**wrong)  # type: ignore[arg-type]


# --- what if ------------------------------------------------------------------------------------------


def steady(template: Template, seconds: np.ndarray) -> float:
    """Mean of the last of many iterations."""
    owned = len(template.worker)
    ends = template.run(seconds[None, :owned, None], seconds[None, owned:], iterations=40).shared[:, -1]
    return float((ends[39] - ends[27]) / 12)


@settings(deadline=None, max_examples=60)
@given(names, st.booleans(), st.integers(1, 6), st.integers(0, 2**32))
def test_what_if_agrees_with_the_schedule_in_the_steady_state(
    name: str, prefetch: bool, layers: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    costs = Costs(0, 0, [0] * layers, [0] * layers, by_layer([1] * layers), 0)
    template = s_sgd(costs, PRESETS[name].preset, prefetch=prefetch)
    parts = random.random((3, len(template.tasks))) * random.integers(0, 2, (3, len(template.tasks)))
    factors = random.random((3, 5))
    found = Structure(template, parts).iteration_seconds(factors)
    expected = [steady(template, parts.T @ scenario) for scenario in factors.T]
    assert found == pytest.approx(expected, rel=1e-9)


def test_cycles_over_two_iterations_are_followed() -> None:
    # a waits for the b before, and b for the a before: each is done once in two iterations' worth of both.
    template = Template([Task("a", C, 0, "x"), Task("b", C, 0, "y")], [], [("a", "b"), ("b", "a")])
    found = Structure(template, np.eye(2)).iteration_seconds([[1.0, 4.0, 4.0], [3.0, 1.0, 4.0]])
    assert found.tolist() == [3.0, 4.0, 4.0]  # a: 1, b: 3 alone (its own resource) is slower than (1 + 3) / 2


def test_without_a_fixed_order_scenarios_are_scheduled() -> None:
    stages = (Stage("node link", 1), Stage("network", 1), Stage("node link", 1))
    costs = Costs(0, 0, [1, 1], [1, 4], [builders.Message((layer,), stages) for layer in (1, 0)], 0)
    template = s_sgd(costs, PRESETS["wfbp"].preset, prefetch=True)
    parts = np.array([[task.duration for task in template.tasks]])
    assert Structure(template, parts).iteration_seconds([[1.0, 2.0, 0.0]]).tolist() == [10.0, 20.0, 0.0]


def test_layers_updated_one_by_one_are_scheduled_until_they_are_steady() -> None:
    # forward n waits for all-reduce n alone: the iterations overlap, over as many tasks as there are layers.
    layers = range(1, 7)
    worker = [Task(f"f{n}", C, 1, "compute", (f"f{n - 1}",) if n > 1 else ()) for n in layers]
    worker += [Task(f"b{n}", C, 2, "compute", (f"b{n + 1}" if n < 6 else "f6",)) for n in reversed(layers)]
    shared = [Task(f"a{n}", N, 3, "network", (f"b{n}",)) for n in reversed(layers)]
    template = Template(worker, shared, [(f"a{n}", f"f{n}") for n in layers])
    assert template.order is not None
    parts = np.array([[task.duration for task in template.tasks]])
    found = Structure(template, parts).iteration_seconds([[1.0, 2.0]])
    # 6 forward, 12 backward, and the time from b1's end to a1's: 6 all-reduces of 3 less 5 layers of 2 after b6.
    assert found.tolist() == [6 + 12 + (18 - 10), 2 * 26]


def test_many_scenarios_on_several_threads_are_each_their_own() -> None:
    template = s_sgd(layered(), Preset(), prefetch=True)
    parts = np.array([[task.duration for task in template.tasks]])
    factors = np.arange(40_000.0)[None]
    assert Structure(template, parts).iteration_seconds(factors) == pytest.approx(14 * factors[0])


def test_unfit_what_ifs_are_refused() -> None:
    template = s_sgd(layered(), Preset(), prefetch=True)
    count = len(template.tasks)
    with pytest.raises(InputError, match="causes x 12 tasks"):
        Structure(template, np.zeros((2, count + 1)))
    with pytest.raises(InputError, match="parts hold a number"):
        Structure(template, np.full((2, count), np.nan))
    structure = Structure(template, np.zeros((2, count)))
    with pytest.raises(InputError, match="2 causes x scenarios"):
        structure.iteration_seconds(np.zeros((3, 4)))
    with pytest.raises(InputError, match="factors hold a number"):
        structure.iteration_seconds(np.full((2, 1), -1.0))
    assert structure.iteration_seconds(np.zeros((2, 0))).shape == (0,)
    assert structure.iteration_seconds(np.ones((2, 2))).tolist() == [0, 0]

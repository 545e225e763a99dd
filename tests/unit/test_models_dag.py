import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallpoint.errors import InputError
from stallpoint.models import dag
from stallpoint.models.dag import Costs, Kind, Span, Task, s_sgd, schedule, steady_iteration

COSTS = Costs(read=2, copy=1, forward=(1, 1, 1), backward=(2, 2, 2), all_reduce=(1, 3, 3), update=1)

times = st.floats(0, 10)


@st.composite
def costs(draw: st.DrawFn) -> Costs:
    layers = draw(st.integers(1, 6))

    def per_layer() -> list[float]:
        return draw(st.lists(times, min_size=layers, max_size=layers))

    return Costs(draw(times), draw(times), per_layer(), per_layer(), per_layer(), draw(times))


def simulated(costs: Costs, sync: str, prefetch: bool, workers: int = 2) -> float:
    return steady_iteration(schedule(s_sgd(costs, sync=sync, prefetch=prefetch, workers=workers, iterations=4)), 4)


def sums(costs: Costs) -> tuple[float, ...]:
    """t_io, t_h2d, t_f, t_b, t_c, t_u."""
    return costs.read, costs.copy, sum(costs.forward), sum(costs.backward), sum(costs.all_reduce), costs.update


def test_first_in_first_out_on_one_resource() -> None:
    #  time   0    1    2    3    4    5
    #  cpu    [ a ][   b     ]         [d]
    #  net         [   c               ]
    tasks = [
        Task("a", Kind.COMPUTE, 1, "cpu"),
        Task("b", Kind.COMPUTE, 2, "cpu"),
        Task("c", Kind.COMMUNICATION, 4, "net", ("a",)),
        Task("d", Kind.COMPUTE, 0.5, "cpu", ("b", "c")),
    ]
    assert schedule(tasks) == {"a": Span(0, 1), "b": Span(1, 3), "c": Span(1, 5), "d": Span(5, 5.5)}


def test_the_queue_is_by_arrival_not_by_order_of_the_list() -> None:
    #  time   0    1    2    3
    #  cpu    [ a ][  late   ]      "early" waits for b, so "late" arrives first
    #  net    [    b    ]
    tasks = [
        Task("a", Kind.COMPUTE, 1, "cpu"),
        Task("b", Kind.COMMUNICATION, 2, "net"),
        Task("early", Kind.COMPUTE, 1, "cpu", ("b",)),
        Task("late", Kind.COMPUTE, 2, "cpu", ("a",)),
    ]
    spans = schedule(tasks)
    assert spans["late"] == Span(1, 3)
    assert spans["early"] == Span(3, 4)


def test_a_wrong_graph_is_refused() -> None:
    with pytest.raises(InputError, match="task a comes after b, which does not exist"):
        schedule([Task("a", Kind.COMPUTE, 1, "cpu", ("b",))])
    with pytest.raises(InputError, match="cycle"):
        schedule([Task("a", Kind.COMPUTE, 1, "cpu", ("b",)), Task("b", Kind.COMPUTE, 1, "cpu", ("a",))])
    with pytest.raises(InputError, match="same name"):
        schedule([Task("a", Kind.COMPUTE, 1, "cpu"), Task("a", Kind.COMPUTE, 1, "cpu")])


def test_figure_1_has_the_papers_tasks_and_edges() -> None:
    tasks = {task.name: task for task in s_sgd(COSTS, sync="wfbp", prefetch=True, workers=4, iterations=1)}
    # T0-T3 read, T4-T7 copy, T8-T19 forward, T20-T31 backward, T32-T34 aggregate, T35 update.
    assert len(tasks) == 36
    assert sum(task.kind is Kind.COMMUNICATION for task in tasks.values()) == 4 + 4 + 3
    assert tasks["all-reduce 3 of 0"].after == tuple(f"backward 3 of 0 on {w}" for w in range(4))  # T20-T23 -> T32
    assert {f"all-reduce {layer} of 0" for layer in (1, 2, 3)} <= set(tasks["update 0"].after)  # T32-T34 -> T35
    assert tasks["forward 1 of 0 on 2"].after == ("copy 0 on 2",)  # T6 -> T10


def test_figure_1_naive() -> None:
    #  time      0   2  3      6           12        18 19
    #  input     [read][c]
    #  worker          [f1 f2 f3][b3  b2  b1]         [u]
    #  network                               [3][2][1]
    spans = schedule(s_sgd(COSTS, sync="naive", prefetch=False, workers=4))
    assert spans["backward 1 of 0 on 3"] == Span(10, 12)
    assert spans["all-reduce 3 of 0"] == Span(12, 15)
    assert spans["all-reduce 2 of 0"] == Span(15, 18)
    assert spans["all-reduce 1 of 0"] == Span(18, 19)
    assert spans["update 0"] == Span(19, 20)
    assert spans["read 1 on 0"] == Span(20, 22)
    assert steady_iteration(spans, 2) == 20


def test_figure_1_input_overlapped() -> None:
    #  time      0    2  3    5  6                          20    22
    #  input     [read][c][read][c]
    #  worker          [f1 f2 f3][b3 b2 b1]    [u][f1 f2 f3]...
    #  network                             [3][2][1]
    spans = schedule(s_sgd(COSTS, sync="naive", prefetch=True, workers=4))
    assert spans["copy 1 on 0"] == Span(5, 6)
    assert spans["forward 1 of 1 on 0"].start == spans["update 0"].end == 20
    assert steady_iteration(spans, 2) == 17  # t_f + t_b + t_c + t_u, the input is hidden


def test_figure_1_wait_free_back_propagation() -> None:
    #  time      3         6    8    10   11   12   14  15  16
    #  worker    [f1 f2 f3][b3 ][b2  ][b1       ]          [u]
    #  network                  [ 3      ][  2      ][1]
    spans = schedule(s_sgd(COSTS, sync="wfbp", prefetch=True, workers=4))
    assert spans["all-reduce 3 of 0"] == Span(8, 11)
    assert spans["all-reduce 2 of 0"] == Span(11, 14)
    assert spans["all-reduce 1 of 0"] == Span(14, 15)
    assert spans["update 0"] == Span(15, 16)
    assert steady_iteration(spans, 2) == 13  # t_f + t_b + t_c^no + t_u, t_c^no = 3


def test_exposed_communication_of_figure_1() -> None:
    start, end = dag.all_reduces(COSTS.backward, COSTS.all_reduce, overlap=True)
    assert start.tolist() == [8, 5, 2]
    assert end.tolist() == [9, 8, 5]
    assert dag.exposed_communication(COSTS.backward, COSTS.all_reduce) == 3
    start, end = dag.in_turn([9, 9], [2, 3])  # two messages after the backward pass
    assert (start.tolist(), end.tolist()) == ([9, 11], [11, 14])


@settings(deadline=None)
@given(costs())
def test_schedule_agrees_with_equations_1_and_2(costs: Costs) -> None:
    assert simulated(costs, "naive", prefetch=False) == pytest.approx(dag.naive_seconds(*sums(costs)))
    t_io, t_h2d, t_f, t_b, _, t_u = sums(costs)
    alone = Costs(t_io, t_h2d, costs.forward, costs.backward, [0.0] * len(costs.forward), t_u)
    assert simulated(alone, "naive", prefetch=False, workers=1) == pytest.approx(
        dag.sgd_seconds(t_io, t_h2d, t_f, t_b, t_u)
    )


@settings(deadline=None)
@given(costs())
def test_schedule_agrees_with_equation_3(costs: Costs) -> None:
    assert simulated(costs, "naive", prefetch=True) == pytest.approx(dag.input_overlapped_seconds(*sums(costs)))


@settings(deadline=None)
@given(costs())
def test_schedule_agrees_with_equations_4_and_5(costs: Costs) -> None:
    t_io, t_h2d, t_f, t_b, _, t_u = sums(costs)
    start, _ = dag.all_reduces(costs.backward, costs.all_reduce, overlap=True)
    exposed = dag.exposed_communication(costs.backward, costs.all_reduce)
    by_start = dag.wfbp_seconds_by_start(t_io, t_h2d, t_f, costs.backward[-1], start, costs.all_reduce[0], t_u)
    assert simulated(costs, "wfbp", prefetch=True) == pytest.approx(by_start)
    assert by_start == pytest.approx(dag.wfbp_seconds(t_io, t_h2d, t_f, t_b, exposed, t_u))


@settings(deadline=None)
@given(costs())
def test_schedule_agrees_with_equation_6(costs: Costs) -> None:
    t_io, t_h2d, t_f, t_b, _, t_u = sums(costs)
    alone = Costs(t_io, t_h2d, costs.forward, costs.backward, [0.0] * len(costs.forward), t_u)
    single, several = simulated(alone, "wfbp", True, workers=1), simulated(costs, "wfbp", True, workers=4)
    if several > 0:
        expected = 4 * max(t_io + t_h2d, t_f + t_b + t_u) / several
        assert dag.speedup(4, single, several) == pytest.approx(expected)


@settings(deadline=None)
@given(costs(), st.sampled_from(["naive", "wfbp"]), st.booleans())
def test_own_training_step_copies_after_the_update(costs: Costs, sync: str, prefetch: bool) -> None:
    # The copy to the device is then a part of computing, before the first layer.
    t_io, t_h2d, t_f, t_b, t_c, t_u = sums(costs)
    forward = [costs.forward[0] + t_h2d, *costs.forward[1:]]
    expected = simulated(Costs(t_io, 0.0, forward, costs.backward, costs.all_reduce, t_u), sync, prefetch)
    communication = t_c if sync == "naive" else dag.exposed_communication(costs.backward, costs.all_reduce)
    found, _ = dag.iteration_seconds(
        t_io, t_h2d, t_f, t_b, communication, t_u, overlap=sync == "wfbp", prefetch="host" if prefetch else "none"
    )
    assert found == pytest.approx(expected)


def test_the_equation_is_named() -> None:
    zeros = [np.zeros(1)] * 6
    names = {
        (o, p): dag.iteration_seconds(*zeros, overlap=o, prefetch=p)[1] for o in (False, True) for p in ("none", "host")
    }
    assert names == {
        (False, "none"): "eq. 2",
        (False, "host"): "eq. 3",
        (True, "none"): "eq. 2 with t_c^no",
        (True, "host"): "eq. 5",
    }


@settings(deadline=None)
@given(costs(), st.sampled_from(["naive", "wfbp"]))
def test_reading_ahead_to_the_device_hides_the_copy(costs: Costs, sync: str) -> None:
    t_io, t_h2d, t_f, t_b, t_c, t_u = sums(costs)
    communication = t_c if sync == "naive" else dag.exposed_communication(costs.backward, costs.all_reduce)
    found, _ = dag.iteration_seconds(
        t_io, t_h2d, t_f, t_b, communication, t_u, overlap=sync == "wfbp", prefetch="device"
    )
    assert found == pytest.approx(simulated(costs, sync, prefetch=True))

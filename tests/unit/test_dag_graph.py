import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stallpoint.errors import InputError
from stallpoint.models.dag import Kind, Span, Task, compilation, drawing, from_tasks, schedule, task_graph

C, N = Kind.COMPUTE, Kind.COMMUNICATION


@pytest.fixture(params=["interpreted", "compiled"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(compilation, "WORTH_COMPILING", -1 if request.param == "compiled" else 10**12)
    return str(request.param)


def discrete_event_simulation(tasks: list[Task]) -> dict[str, Span]:
    """Step from one end of a task to the next; every free resource takes its best waiting task."""
    now = 0.0
    arrived: dict[str, float] = {}
    spans: dict[str, Span] = {}
    while len(spans) < len(tasks):
        ended = {name for name, span in spans.items() if span.end <= now}
        for task in tasks:
            if task.name not in arrived and ended.issuperset(task.after):
                arrived[task.name] = now
        busy = {task.resource for task in tasks if task.name in spans and spans[task.name].end > now}
        for resource in {task.resource for task in tasks} - busy:
            waiting = [t for t in tasks if t.resource == resource and t.name in arrived and t.name not in spans]
            if waiting:
                best = min(waiting, key=lambda t: (t.priority, arrived[t.name], tasks.index(t)))
                spans[best.name] = Span(now, now + best.duration)
        now = min((span.end for span in spans.values() if span.end > now), default=now)
    return spans


@st.composite
def jobs(draw: st.DrawFn) -> list[Task]:
    """Tasks in any order, with whole durations so that many things happen at once."""
    count = draw(st.integers(1, 14))
    shuffled = draw(st.permutations(range(count)))
    tasks = []
    for place in range(count):
        after = draw(st.sets(st.integers(0, place - 1), max_size=3)) if place else set()
        tasks.append(
            Task(
                f"t{shuffled[place]}",
                C,
                draw(st.integers(1, 4)),
                f"r{draw(st.integers(0, 3))}",
                tuple(f"t{shuffled[other]}" for other in sorted(after)),
                draw(st.sampled_from([0, 0, 0, 1, 2])),
            )
        )
    return sorted(tasks, key=lambda task: int(task.name[1:]))


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(jobs())
def test_any_graph_agrees_with_a_discrete_event_simulation(engine: str, tasks: list[Task]) -> None:
    assert schedule(tasks) == discrete_event_simulation(tasks)


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(jobs(), st.data())
def test_with_zeros_no_resource_is_used_twice_and_nothing_begins_early(
    engine: str, tasks: list[Task], data: st.DataObject
) -> None:
    graph = from_tasks(tasks)
    seconds = data.draw(st.lists(st.sampled_from([0.0, 0.0, 1.0]), min_size=len(tasks), max_size=len(tasks)))
    times = graph.run(seconds)
    at = {task.name: (times.start[i], times.end[i]) for i, task in enumerate(tasks)}
    for one in tasks:
        assert all(at[name][1] <= at[one.name][0] for name in one.after)
        for other in tasks:
            if other is not one and other.resource == one.resource:
                assert at[one.name][1] <= at[other.name][0] or at[other.name][1] <= at[one.name][0]


def test_first_in_first_out_on_one_resource(engine: str) -> None:
    tasks = [
        Task("a", C, 1, "cpu"),
        Task("b", C, 2, "cpu"),
        Task("c", N, 4, "net", ("a",)),
        Task("d", C, 0.5, "cpu", ("b", "c")),
    ]
    spans = schedule(tasks)
    assert drawing.timeline(tasks, spans, columns_per_second=6) == "\n".join([
        #     0     1     2     3     4     5  5.5
        "cpu  [a   ][b         ]            [d]",
        "net        [c                     ]",
    ])  # fmt: skip
    assert spans == {"a": Span(0, 1), "b": Span(1, 3), "c": Span(1, 5), "d": Span(5, 5.5)}


def test_the_queue_is_by_arrival_not_by_order_of_the_list(engine: str) -> None:
    #  time   0    1    2    3    4
    #  cpu    [ a ][  late  ][early]      "early" waits for b, so "late" arrives first
    #  net    [    b    ]
    tasks = [
        Task("a", C, 1, "cpu"),
        Task("b", N, 2, "net"),
        Task("early", C, 1, "cpu", ("b",)),
        Task("late", C, 2, "cpu", ("a",)),
    ]
    spans = schedule(tasks)
    assert spans["late"] == Span(1, 3)
    assert spans["early"] == Span(3, 4)


def test_priority_goes_before_arrival_but_interrupts_nothing(engine: str) -> None:
    #  time   0      1      2      3      4      5
    #  cpu    [ a           ][ c  ][ b         ]      c arrives last and is urgent
    #  net    [ x  ]
    tasks = [
        Task("a", C, 2, "cpu", priority=5),
        Task("b", C, 2, "cpu", priority=5),
        Task("x", N, 1, "net"),
        Task("c", C, 1, "cpu", ("x",), priority=1),
    ]
    spans = schedule(tasks)
    assert (spans["a"], spans["c"], spans["b"]) == (Span(0, 2), Span(2, 3), Span(3, 5))


def large() -> dict[str, np.ndarray]:
    random = np.random.default_rng(4)
    count = 25_000
    after = np.repeat(np.arange(1, count), 2)
    return {
        "duration": random.random(count),
        "resource": random.integers(0, 50, count),
        "before": (after * random.random(len(after))).astype(np.int64),
        "after": after,
    }


def test_compiled_and_interpreted_kernels_agree_on_a_large_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "WORTH_COMPILING", 10**12)
    interpreted = task_graph(**large()).run()
    monkeypatch.setattr(compilation, "WORTH_COMPILING", 20_000)
    assert task_graph(**large()).run().start.tolist() == interpreted.start.tolist()


def test_numbering_changes_nothing_where_no_two_tasks_are_equal() -> None:
    job = large()
    number = np.random.default_rng(5).permutation(len(job["duration"]))
    inverse = np.argsort(number)
    priority = np.arange(len(number))
    times = task_graph(**job, priority=priority).run()
    moved = task_graph(
        job["duration"][inverse], job["resource"][inverse], number[job["before"]], number[job["after"]],
        priority=priority[inverse],
    ).run()  # fmt: skip
    assert moved.start[number].tolist() == times.start.tolist()


def test_precedence_alone_orders_a_chain_and_nothing_queues() -> None:
    chain = [Task(f"t{i}", C, 1, "cpu", (f"t{i - 1}",) if i else ()) for i in range(5)]
    assert (from_tasks(chain).queue == -1).all()
    fork = [Task("a", C, 1, "cpu"), Task("b", C, 1, "cpu", ("a",)), Task("c", C, 1, "cpu", ("a",))]
    assert (from_tasks(fork).queue == 0).all()


def test_resources_may_have_any_numbers() -> None:
    assert task_graph([1, 1, 1], [2_000_000_000, 7, 2_000_000_000]).run().start.tolist() == [0, 0, 1]


def test_nothing_to_do() -> None:
    assert schedule([]) == {}
    assert task_graph([], []).run().makespan == 0


def test_a_wrong_graph_is_refused() -> None:
    a, b = Task("a", C, 1, "cpu", ("b",)), Task("b", C, 1, "cpu", ("a",))
    with pytest.raises(InputError, match="task a comes after b, which does not exist"):
        schedule([a])
    with pytest.raises(InputError, match="cycle among or before task a, task b"):
        schedule([a, b])
    with pytest.raises(InputError, match="same name"):
        schedule([b, b])
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match=rf"task b has a duration of {wrong} s; a number >= 0"):
            schedule([Task("a", C, 1, "cpu"), Task("b", C, wrong, "cpu")])
    with pytest.raises(InputError, match="task 1 needs resource 2; there are 0 to 1"):
        task_graph([1, 1], [0, 2], resources=2)
    with pytest.raises(InputError, match="edge 0 -> 7 names a task that does not exist"):
        task_graph([1, 1], [0, 0], [0], [7])
    with pytest.raises(InputError, match="an edge needs both"):
        task_graph([1, 1], [0, 0], [0], [])
    with pytest.raises(InputError, match="not whole numbers"):
        task_graph([1, 1], [0.5, 0])
    with pytest.raises(InputError, match="one for each task"):
        task_graph([1, 1], [0, 0]).run([1])

"""Eqs. (1)-(5) of Shi et al. (2018) and the engine, held together."""

import closed_forms
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallpoint.models.taskgraph import Costs, MessageTimes, iteration_tasks, schedule
from stallpoint.strategies.presets import PRESETS

times = st.floats(0, 10)
LAYERS = st.integers(1, 6)


class Drawn:
    """Random costs, and the sums the equations take."""

    def __init__(self, draw: st.DrawFn) -> None:
        layers = draw(LAYERS)
        per_layer = st.lists(times, min_size=layers, max_size=layers)
        self.forward, self.backward, self.all_reduce = draw(per_layer), draw(per_layer), draw(per_layer)
        self.t_io, self.t_h2d, self.t_u = draw(times), draw(times), draw(times)

    @property
    def t_f_and_t_b(self) -> tuple[float, float]:
        return sum(self.forward), sum(self.backward)

    @property
    def exposed(self) -> float:
        return float(closed_forms.exposed_communication(self.backward, self.all_reduce))

    def simulated(self, preset: str, *, prefetch: bool, workers: int) -> float:
        """Time between the ends of two updates, one after the other: as long as every later one."""
        sent = [MessageTimes((layer,), seconds) for layer, seconds in enumerate(self.all_reduce) if workers > 1]
        costs = Costs(self.t_io, self.t_h2d, self.forward, self.backward, sent[::-1], self.t_u)
        tasks = iteration_tasks([costs] * workers, PRESETS[preset].preset, prefetch=prefetch, iterations=4)
        ends = [float(schedule(tasks).end[f"update of {number}"]) for number in range(4)]
        assert ends[3] - ends[2] == pytest.approx(ends[1] - ends[0], abs=1e-9)
        return ends[1] - ends[0]


costs = st.composite(lambda draw: Drawn(draw))()


def test_exposed_communication_of_figure_1() -> None:
    #  time      0    2    4  5  6    8  9     since the start of the backward pass
    #  worker    [b3 ][b2 ][b1 ]
    #  network        [ 3     ][ 2    ][1]
    backward, all_reduce = (2, 2, 2), (1, 3, 3)
    start, end = closed_forms.all_reduces(backward, all_reduce, overlap=True)
    assert start.tolist() == [8, 5, 2]
    assert end.tolist() == [9, 8, 5]
    assert closed_forms.exposed_communication(backward, all_reduce) == 3
    start, end = closed_forms.all_reduces(backward, all_reduce, overlap=False)
    assert (start.tolist(), end.tolist()) == ([12, 9, 6], [13, 12, 9])
    start, end = closed_forms.in_turn([9, 9], [2, 3])  # two messages after the backward pass
    assert (start.tolist(), end.tolist()) == ([9, 11], [11, 14])


@given(costs)
def test_an_iteration_by_the_start_of_messages_is_that_by_what_of_them_is_exposed(c: Drawn) -> None:
    t_f, t_b = c.t_f_and_t_b
    start, _ = closed_forms.all_reduces(c.backward, c.all_reduce, overlap=True)
    by_start = closed_forms.wfbp_seconds_by_start(c.t_io, c.t_h2d, t_f, c.backward[-1], start, c.all_reduce[0], c.t_u)
    found = closed_forms.input_overlapped_seconds(c.t_io, c.t_h2d, t_f, t_b, c.exposed, c.t_u)
    assert by_start == pytest.approx(found)


@given(costs, st.sampled_from(["naive", "wfbp", "cntk", "caffe-mpi"]), st.booleans(), st.sampled_from([1, 2, 4]))
def test_iteration_seconds_are_those_of_the_schedule(c: Drawn, name: str, prefetch: bool, workers: int) -> None:
    """Eqs. (1) and (3) without communication on one worker; (2), (3) and (5)."""
    preset = PRESETS[name].preset
    sent = 0.0 if workers == 1 else c.exposed if preset.start == "layer-ready" else sum(c.all_reduce)
    ahead = "device" if preset.device_prefetch else "host"
    found = closed_forms.iteration_seconds(
        c.t_io, c.t_h2d, *c.t_f_and_t_b, sent, c.t_u, prefetch=ahead if prefetch else "none"
    )
    assert found == pytest.approx(c.simulated(name, prefetch=prefetch, workers=workers))


def test_the_equation_is_named() -> None:
    names = {
        (name, prefetch): PRESETS[name].preset.strategy.equation(prefetch=prefetch)
        for name in ("naive", "wfbp")
        for prefetch in (False, True)
    }
    assert names == {
        ("naive", False): "eq. 2",
        ("naive", True): "eq. 3",
        ("wfbp", False): "eq. 2 with t_c^no",
        ("wfbp", True): "eq. 5",
    }

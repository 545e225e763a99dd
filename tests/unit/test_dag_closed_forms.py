"""Eqs. (1)-(6) of Shi et al. (2018) and the engine, held together."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallpoint.models import dag
from stallpoint.models.dag import Costs, by_layer, s_sgd, schedule
from stallpoint.presets import PRESETS

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
        return float(dag.exposed_communication(self.backward, self.all_reduce))

    def simulated(self, preset: str, *, prefetch: bool, workers: int = 2, alone: bool = False) -> float:
        """Time between the ends of the last two of four updates."""
        sent = [] if alone else by_layer(self.all_reduce)
        costs = Costs(self.t_io, self.t_h2d, self.forward, self.backward, sent, self.t_u)
        spans = schedule(s_sgd(costs, PRESETS[preset].preset, prefetch=prefetch).written_out(workers, iterations=4))
        return spans["update of 3"].end - spans["update of 2"].end


costs = st.composite(lambda draw: Drawn(draw))()


def test_exposed_communication_of_figure_1() -> None:
    #  time      0    2    4  5  6    8  9     since the start of the backward pass
    #  worker    [b3 ][b2 ][b1 ]
    #  network        [ 3     ][ 2    ][1]
    backward, all_reduce = (2, 2, 2), (1, 3, 3)
    start, end = dag.all_reduces(backward, all_reduce, overlap=True)
    assert start.tolist() == [8, 5, 2]
    assert end.tolist() == [9, 8, 5]
    assert dag.exposed_communication(backward, all_reduce) == 3
    start, end = dag.all_reduces(backward, all_reduce, overlap=False)
    assert (start.tolist(), end.tolist()) == ([12, 9, 6], [13, 12, 9])
    start, end = dag.in_turn([9, 9], [2, 3])  # two messages after the backward pass
    assert (start.tolist(), end.tolist()) == ([9, 11], [11, 14])


@settings(deadline=None)
@given(costs)
def test_schedule_agrees_with_equations_1_and_2(c: Drawn) -> None:
    t_f, t_b = c.t_f_and_t_b
    naive = dag.naive_seconds(c.t_io, c.t_h2d, t_f, t_b, sum(c.all_reduce), c.t_u)
    assert c.simulated("naive", prefetch=False) == pytest.approx(naive)
    one = dag.sgd_seconds(c.t_io, c.t_h2d, t_f, t_b, c.t_u)
    assert c.simulated("naive", prefetch=False, workers=1, alone=True) == pytest.approx(one)


@settings(deadline=None)
@given(costs)
def test_schedule_agrees_with_equation_3(c: Drawn) -> None:
    t_f, t_b = c.t_f_and_t_b
    # Eq. (3) has the copy ahead too; with host prefetch (cntk) it stands on the computing side.
    t_c = sum(c.all_reduce)
    on_host = dag.input_overlapped_seconds(c.t_io, 0.0, c.t_h2d + t_f, t_b, t_c, c.t_u)
    assert c.simulated("cntk", prefetch=True) == pytest.approx(on_host)
    assert c.simulated("caffe-mpi", prefetch=True, alone=True) == pytest.approx(
        dag.input_overlapped_seconds(c.t_io, c.t_h2d, t_f, t_b, 0.0, c.t_u)
    )


@settings(deadline=None)
@given(costs)
def test_schedule_agrees_with_equations_4_and_5(c: Drawn) -> None:
    t_f, t_b = c.t_f_and_t_b
    start, _ = dag.all_reduces(c.backward, c.all_reduce, overlap=True)
    by_start = dag.wfbp_seconds_by_start(c.t_io, c.t_h2d, t_f, c.backward[-1], start, c.all_reduce[0], c.t_u)
    assert c.simulated("caffe-mpi", prefetch=True) == pytest.approx(by_start)
    assert by_start == pytest.approx(dag.wfbp_seconds(c.t_io, c.t_h2d, t_f, t_b, c.exposed, c.t_u))


@settings(deadline=None)
@given(costs)
def test_schedule_agrees_with_equation_6(c: Drawn) -> None:
    single = c.simulated("caffe-mpi", prefetch=True, workers=1, alone=True)
    several = c.simulated("caffe-mpi", prefetch=True, workers=4)
    if several > 0:
        expected = 4 * max(c.t_io + c.t_h2d, sum(c.t_f_and_t_b) + c.t_u) / several
        assert dag.speedup(4, single, several) == pytest.approx(expected)


@settings(deadline=None)
@given(costs, st.sampled_from(["naive", "wfbp", "caffe-mpi"]), st.booleans())
def test_iteration_seconds_are_those_of_the_schedule(c: Drawn, preset: str, prefetch: bool) -> None:
    overlap = PRESETS[preset].preset.start == "layer-ready"
    ahead = "device" if PRESETS[preset].preset.device_prefetch else "host"
    found, _ = dag.iteration_seconds(
        c.t_io, c.t_h2d, *c.t_f_and_t_b, c.exposed if overlap else sum(c.all_reduce), c.t_u,
        overlap=overlap, prefetch=ahead if prefetch else "none",
    )  # fmt: skip
    assert found == pytest.approx(c.simulated(preset, prefetch=prefetch))


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

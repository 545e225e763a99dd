"""No answer hangs on a constant that was set by hand: half of each and twice as much, on answers that were planted.

All of it is for the night (`make test-all`): what a change of the models breaks, their own tests find. What only
measuring shows of those in `stallpoint.measure.constants` is in benchmarks/sensitivity.py.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import truth_causes
import truth_laws
from made_up_products import CALIBRATED, changing, curves, rows
from made_up_readings import COUNT, TIME, during, marked, recorded, with_another_process
from made_up_readings import rows as readings
from planted import NOISES, THRESHOLD, Noise, amdahl, steps
from planted import curves as planted_curves
from synthetic import NETWORK, Layer, Truth, study
from visiting_cells import train

from stallpoint.base import statistics
from stallpoint.base.measured import measured
from stallpoint.base.stall import Verdict
from stallpoint.measure import constants
from stallpoint.measure.jobs.sgemm import settled_rows
from stallpoint.measure.synchronisation.assembly import calibrated
from stallpoint.models.answers import next_cells
from stallpoint.models.answers.causes import LossVerdict
from stallpoint.models.answers.controls import trusted
from stallpoint.models.answers.stalling import tables as stalling
from stallpoint.models.fitting import fit
from stallpoint.models.scaling import extrapolation, laws, posterior
from stallpoint.models.scaling import scaling_law_choice as choice
from stallpoint.models.scaling import series_placement as places
from stallpoint.models.scaling.laws import LAWS, Law, Model, Prior
from stallpoint.models.scaling.series_placement import Placements
from stallpoint.models.terms import (
    all_reduce_law,
    batch_law,
    communication,
    contention,
    effects,
    piecewise_line,
    reductions,
)
from stallpoint.models.terms.batch_law import Kernel
from stallpoint.models.terms.communication import all_reduce_seconds
from stallpoint.models.terms.contention import SPREADS
from stallpoint.models.terms.effects import FAIR_SHARE
from stallpoint.records import disturbances
from stallpoint.records.tables import MACHINE
from stallpoint.schedule import next_visit as turns_choice
from stallpoint.schedule import session
from stallpoint.schedule.next_visit import Speedup, VisitedCell
from stallpoint.schedule.session import SideBySide
from stallpoint.strategies.mg_wfbp import last_message_end, merged_groups

pytestmark = pytest.mark.night


@dataclass(frozen=True)
class Other:
    """A constant with another value."""

    module: ModuleType
    name: str
    value: Any

    def __str__(self) -> str:
        return f"{self.module.__name__.removeprefix('stallpoint.')}.{self.name}={self.value}"

    def put(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """In its module, and where it was imported by name."""
        old = getattr(self.module, self.name)
        for module in [module for name, module in sys.modules.items() if name.startswith("stallpoint.")]:
            if vars(module).get(self.name) is old:
                monkeypatch.setattr(module, self.name, self.value)


def others(module: ModuleType, name: str, *values: object) -> list[Other]:
    return [Other(module, name, value) for value in values]


def twice(module: ModuleType, *names: str) -> list[Other]:
    """Half of each and twice as much."""
    half = {name: getattr(module, name) / 2 for name in names}
    kind = {name: type(getattr(module, name)) for name in names}
    return [Other(module, name, kind[name](part * half[name])) for name in names for part in (1, 4)]


def levels(module: ModuleType, name: str) -> list[Other]:
    """Half of the levels whose probabilities the constant holds, and twice as much."""
    known = getattr(module, name)
    return others(module, name, *({part * level: of for level, of in known.items()} for part in (0.5, 2)))


def each(module: ModuleType, name: str) -> list[Other]:
    """Half of each number that the constant holds, and twice as much, the others as they are."""
    known = getattr(module, name)
    return others(module, name, *({**known, key: part * known[key]} for key in known for part in (0.5, 2)))


def changed(values: Sequence[Other]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("other", values, ids=str)


# --- verdicts ------------------------------------------------------------------------------------

UNKNOWN = statistics.VISIT_PRIOR
SCATTER = [
    *twice(statistics, "MIN_SCATTER", "MAX_DEVIATION", "MAX_FACTOR", "MIN_VALUES"),
    *others(statistics, "MIN_CELLS", 2, 6),
    *others(statistics, "VISIT_PRIOR", *(replace(UNKNOWN, deviation=part * UNKNOWN.deviation) for part in (0.5, 2))),
    *others(statistics, "VISIT_PRIOR", *(replace(UNKNOWN, freedom=part * UNKNOWN.freedom) for part in (0.5, 2))),
    *others(statistics, "FREEDOM_BOUNDS", (0.5, 50.0), (2.0, 50.0), (1.0, 25.0), (1.0, 100.0)),
]
FITTING = [
    *twice(posterior, "ENOUGH_DRAWS", "TEMPERED_DRAWS"),
    *others(posterior, "FREEDOM", 3, 10),
]
NODES = tuple(2**power for power in range(6))
QUIET, USUAL_NOISE, LOUD = NOISES[0], NOISES[1], NOISES[2]
STALLS, SCALES = ("stalls", 8), ("scales", 32)


@cache
def recorded_steps(stall: int, noise: Noise, trial: int) -> pd.DataFrame:
    """What was measured of such a curve, the same whatever is made of it."""
    return steps({"": amdahl(stall)}, NODES, noise, np.random.default_rng([128, trial]))


def verdict(stall: int, noise: Noise, trial: int = 0) -> tuple[object, object]:
    """The verdict on a curve by Amdahl's law, and the nodes that it names."""
    points = measured(recorded_steps(stall, noise, trial), trial)
    (row,), _ = stalling(map(trusted, planted_curves(points)), THRESHOLD, 0.5)
    return row["verdict"], row["verdict_ranks"]


@changed([*SCATTER, *FITTING])
def test_where_it_stalls_stays(other: Other, monkeypatch: pytest.MonkeyPatch) -> None:
    other.put(monkeypatch)
    assert verdict(8, QUIET) == STALLS
    assert verdict(1000, USUAL_NOISE) == SCALES
    for noise in (USUAL_NOISE, LOUD):  # so much noise may leave it open, but must not turn it round
        for trial in range(2):
            assert verdict(8, noise, trial) == STALLS or verdict(8, noise, trial)[0] == Verdict.UNDECIDED


PRIORS = [prior for prior in vars(laws).values() if isinstance(prior, Prior)]
OF_A_CURVE = [prior for prior in PRIORS if not prior.name.startswith("node_") and prior is not laws.LINK_SHARING]
"""Those that play a part where every node has one worker."""


@pytest.fixture
def scaled(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[Prior], str, float], None]:
    """Makes the median or the spread of some priors so many times as large."""

    def scale(priors: Sequence[Prior], part: str, factor: float) -> None:
        for prior in priors:
            monkeypatch.setitem(vars(prior), part, factor * getattr(prior, part))

    return scale


Scale = Callable[[Sequence[Prior], str, float], None]


@pytest.mark.parametrize("factor", [2, 0.5])
@pytest.mark.parametrize("part", ["median", "spread"])
@pytest.mark.parametrize("of", [tuple(OF_A_CURVE), *((prior,) for prior in OF_A_CURVE)], ids=lambda of: of[0].name)
def test_where_it_stalls_does_not_hang_on_a_prior(of: Sequence[Prior], part: str, factor: float, scaled: Scale) -> None:
    scaled(of, part, factor)
    assert verdict(8, QUIET) == STALLS
    assert verdict(1000, USUAL_NOISE) == SCALES


# --- causes --------------------------------------------------------------------------------------


@changed(SCATTER)
def test_dominant_causes_stay(other: Other, monkeypatch: pytest.MonkeyPatch) -> None:
    other.put(monkeypatch)
    for place, cause in enumerate(truth_causes.CAUSES):
        following = truth_causes.CAUSES[(place + 1) % len(truth_causes.CAUSES)]
        lost = {cause: truth_causes.LOST, following: truth_causes.NEXT}
        curve = truth_causes.planted_curve(lost, QUIET, np.random.default_rng([2017, place]), 0)
        found = truth_causes.judged(curve)
        assert [name for name, said in found.items() if said == LossVerdict.DOMINANT] == [cause]


# --- all-reduces at node counts nobody ran -------------------------------------------------------

LINKS = [
    *each(all_reduce_law, "PRIOR"),
    *twice(all_reduce_law, "FAR_FACTOR", "MIN_PROBABILITY"),
    *others(all_reduce_law, "MAX_FLOOR_RATIO", 1.1, 1.5),
    *each(all_reduce_law, "LIBRARY_LAW_WEIGHTS"),
    *each(all_reduce_law, "JOB"),
    *each(all_reduce_law, "SIZE"),
    *each(all_reduce_law, "DRIFT"),
    *twice(all_reduce_law, "PRIOR_DEVIATION", "MAX_DOUBLINGS"),
    *others(piecewise_line, "MIN_ERROR_RATIO", 1.125, 1.5),
    *twice(piecewise_line, "MAX_SEGMENTS"),
    *twice(communication, "MAX_RESIDUAL", "MIN_CO_RUN_SHARE"),
    *others(reductions, "CERTAIN_SHARE", 0.9, 0.975),
]


@changed(LINKS)
def test_all_reduces_on_many_more_nodes_stay_covered(other: Other, monkeypatch: pytest.MonkeyPatch) -> None:
    other.put(monkeypatch)
    for law in truth_laws.PLANTED.values():
        random = np.random.default_rng([64, 0])
        calls = truth_laws.measured(lambda nodes, law=law: truth_laws.seconds(law, nodes), (2, 4, 8), 0.02, random)
        ((_, links),) = communication.fit(calls, seed=0).items()
        found = all_reduce_seconds(links.at(64), 64, truth_laws.SIZES)
        truth = truth_laws.seconds(law, 64)
        low, high = np.quantile(found[1:], (0.05, 0.95), axis=0)
        assert ((low <= truth) & (truth <= high)).all()
        assert np.abs(found[0] / truth - 1).max() < 0.05


# --- training at node counts nobody ran ----------------------------------------------------------

TRAINING = [
    *twice(contention, "MIN_OVERLAP_SHARE"),
    *others(contention, "MIN_TIME_SHARE", 0.8, 0.95),
    # Twice as many are more than are sent here: delays then count as factors, and larger node counts are 6 to 11 % off.
    *others(contention, "MIN_COLLECTIVES", 3),
    *others(contention, "SPREADS", *({**SPREADS, key: part * SPREADS[key]} for key in SPREADS for part in (0.5, 2))),
    *others(effects, "FAIR_SHARE", FAIR_SHARE / 2, 1 - FAIR_SHARE / 2),
    *twice(effects, "RATIO_SPREAD"),
    *twice(next_cells, "STEP_ERROR", "MIN_NARROWING", "DRAWS_PER_REPLICATE", "GROUP_COUNT"),
    *twice(statistics, "MAX_FACTOR"),
]


@dataclass(frozen=True)
class Answers:
    """What a study is asked for."""

    error: float
    """Largest error of training on four nodes, predicted from one and two."""
    verdicts: list[tuple[object, ...]]
    causes: set[tuple[object, ...]]
    """Dominant causes of what was measured."""
    next_cells: list[tuple[object, ...]]
    """What is advised to run first, for each curve whose interval a cell narrows: elsewhere any cell is first."""


def contention_of(layers: tuple[Layer, ...]) -> dict[str, pd.DataFrame]:
    """A study in which training on several nodes slows computing down and delays messages."""
    return study(
        Truth(layers, slower=1.3, delay=3e-3), nodes=(1, 2, 4), storages=("local",), prefetches=(2,),
        compute_batches=(64, 16, 8), repeats=1, visits=3, iterations=3,
    )  # fmt: skip


@pytest.fixture(scope="module")
def contended() -> dict[str, pd.DataFrame]:
    return contention_of(NETWORK)


def answers(tables: Mapping[str, pd.DataFrame]) -> Answers:
    found = fit(tables, nodes=[8, 16])
    causes = found["causes"].query("verdict == 'dominant' and basis == 'measured'")
    first = found["next_cells"].query("rank_in_curve == 1 and narrowing > width / 10")
    return Answers(
        float(found["validation"]["error"].abs().max()),
        _tuples(found["stalling"], "sync", "scaling", "verdict", "verdict_ranks", "stall_ranks"),
        set(_tuples(causes, "sync", "scaling", "nodes", "cause")),
        _tuples(first, "sync", "scaling", "kind", "nodes", "worker_batch"),
    )


def _tuples(frame: pd.DataFrame, *columns: str) -> list[tuple[object, ...]]:
    return list(frame[list(columns)].itertuples(index=False, name=None))


@pytest.fixture(scope="module")
def as_set(contended: dict[str, pd.DataFrame]) -> Answers:
    return answers(contended)


@changed(TRAINING)
def test_answers_about_contended_training_stay(
    other: Other, contended: dict[str, pd.DataFrame], as_set: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    other.put(monkeypatch)
    found = answers(contended)
    assert found.error < 0.02
    assert replace(found, error=as_set.error) == as_set


def test_of_many_messages_delays_are_learned_though_more_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    thirds = [
        Layer(f"{layer.name}.{part}", layer.type, layer.fixed / 3, layer.each / 3, layer.gradient_bytes // 3)
        for layer in NETWORK
        for part in range(3)
    ]
    monkeypatch.setattr(contention, "MIN_COLLECTIVES", 2 * contention.MIN_COLLECTIVES)
    assert answers(contention_of(tuple(thirds))).error < 0.03


@pytest.mark.parametrize("usual", [effects.RATIO_SPREAD / 2, 2 * effects.RATIO_SPREAD])
def test_nodes_that_slow_each_other_down_stay_found(usual: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "RATIO_SPREAD", usual)
    noise = np.exp(0.01 * np.random.default_rng(0).standard_normal((2, 1 + statistics.REPLICATES)))
    noise[:, 0] = 1
    known = effects.Slowdown({"cpu": {(2, 1): noise[0], (8, 1): 1.2 * noise[1]}}, {})
    assert known.ratio("cpu", (8, 1), (2, 1))[0] == pytest.approx(1.2, rel=0.02)


# --- rates at four times as many workers ---------------------------------------------------------

EXTRAPOLATING = [
    *levels(places, "SIGMA_PRIOR"),
    *levels(places, "TAU_PRIOR"),
    *others(places, "SHARED", 0.25, 0.75),
    *others(choice, "WINNING_WEIGHT", 0.9, 0.975),
    *twice(choice, "MAX_INTERVAL_RATIO"),
    *others(extrapolation, "MAX_MISFIT", 1.5, 4.0),
    *twice(posterior, "ENOUGH_DRAWS", "TEMPERED_DRAWS"),
    *others(posterior, "FREEDOM", 3, 10),
]
COUNTS = (1, 2, 4, 8, 16, 64)
LAW_RATES = {law.name: law for law in LAWS if law.name in ("log", "ring", "amdahl")}


def rates(law: Law) -> pd.DataFrame:
    """Rates by the law's usual coefficients, 2 % of noise, the last left out; and the truth of that."""
    workers, batch = np.array(COUNTS, dtype=np.float64), np.full(len(COUNTS), 32.0)
    places_ = Placements(workers, np.full(len(COUNTS), np.nan), batch)
    model = Model.of(law, places_)
    truth = workers * np.exp(-model.log_time(np.zeros((1, len(model.priors))), places_)[0])
    seen = truth * np.exp(0.02 * np.random.default_rng(1).standard_normal(len(COUNTS)))
    return pd.DataFrame({
        "series": "s", "workers": COUNTS, "workers_per_node": np.nan, "batch_per_worker": batch,
        "samples_per_second": [*seen[:-1], np.nan], "truth": truth,
    })  # fmt: skip


RATES = {name: rates(law) for name, law in LAW_RATES.items()}


def carried(name: str) -> tuple[float, bool]:
    """The rate at 64 workers over the truth, and whether its interval holds that."""
    truth = RATES[name]["truth"].iloc[-1]
    found = extrapolation.extrapolate(RATES[name].drop(columns="truth")).iloc[-1]
    return found["predicted"] / truth, found["lower"] <= truth <= found["upper"]


@pytest.fixture(scope="module")
def rates_as_set() -> dict[str, float]:
    return {name: carried(name)[0] for name in RATES}


@pytest.mark.parametrize("name", RATES)
@changed(EXTRAPOLATING)
def test_rates_of_many_more_workers_stay(
    other: Other, name: str, rates_as_set: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    other.put(monkeypatch)
    ratio, held = carried(name)
    assert held
    assert ratio == pytest.approx(rates_as_set[name], rel=0.02)


@pytest.mark.parametrize("name", RATES)
@pytest.mark.parametrize("part", ["median", "spread"])
@pytest.mark.parametrize("factor", [0.5, 2])
def test_rates_stay_covered_when_all_priors_are_others(
    factor: float, part: str, name: str, rates_as_set: dict[str, float], scaled: Scale
) -> None:
    scaled(PRIORS, part, factor)
    ratio, held = carried(name)
    assert held
    assert ratio == pytest.approx(rates_as_set[name], rel=0.15)


# --- matrix products -----------------------------------------------------------------------------


def library(largest: int) -> pd.DataFrame:
    """Products of a library that changes between kernels, ``rows`` measured up to `largest`."""
    found: list[dict[str, object]] = []
    for m in (m for m in constants.ROWS if m <= largest):
        found += rows("rows", MACHINE, m, 4096, 6144, _took(m, 6144))
    for b in (*CALIBRATED, 512):
        found += rows("reference", "fully-connected", b, 4096, 9216, _took(b, 9216))
    return pd.DataFrame(found)


def _took(m: int, n: int) -> float:
    return changing(m, 4096, n)


@pytest.mark.parametrize("part", [0.5, 1, 2])
def test_products_between_measured_rows_do_not_hang_on_where_rows_end(
    part: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "ROWS_SETTLED", part * constants.ROWS_SETTLED)
    largest = settled_rows(lambda m: m / _took(m, 6144))
    at = curves(library(largest))["reference"]
    for b in (3, 8, 24, 128, 160, 192, 384):
        assert float(at(b)[0, 0]) == pytest.approx(_took(b, 9216), rel=0.02)


@changed(others(batch_law, "MIN_BATCHES_TO_CHOOSE", 2, 6) + twice(batch_law, "ERROR_CAP"))
def test_products_at_left_out_mini_batches_stay(other: Other, monkeypatch: pytest.MonkeyPatch) -> None:
    other.put(monkeypatch)
    at = curves(library(512))["reference"]
    assert at.kernel != Kernel()
    for b in (3, 8, 24, 128, 160, 192, 384):
        assert float(at(b)[0, 0]) == pytest.approx(_took(b, 9216), rel=0.02)


# --- plans of merged messages --------------------------------------------------------------------

GRADIENTS = [4e6, 16e6, 67e6, 151e6, 1.8e6, 2.7e6, 3.5e6, 1.2e6, 0.14e6]
READY = [0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.15, 0.19, 0.25]


@changed(twice(constants, "LATENCIES", "LATENCY_BYTES"))
@pytest.mark.parametrize("alpha", [5e-6, 1e-3, 20e-3])
@pytest.mark.parametrize("beta", [1e-11, 1e-9])
def test_plans_of_messages_are_as_good(
    other: Other, alpha: float, beta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small messages go another way than large ones, with half the latency and half the bandwidth."""

    def seconds(size: int) -> float:
        return alpha / 2 + 2 * beta * size if size < 2**13 else alpha + beta * size

    def ends() -> float:
        plan = merged_groups(GRADIENTS, READY, *calibrated(seconds, int(sum(GRADIENTS))))
        return last_message_end(plan, GRADIENTS, READY, alpha, beta)

    before = ends()
    other.put(monkeypatch)
    assert ends() == pytest.approx(before, rel=0.05)


# --- disturbances --------------------------------------------------------------------------------

JUDGING = [
    *twice(disturbances, "MIN_SHARE", "MAX_ERROR", "STEAL_ERROR", "CLOCK_DROP", "MIN_STANDSTILL", "STANDSTILL_SECONDS"),
    *others(disturbances, "MIN_SLOWDOWN", 1.1, 1.4),
]


def _slow_visit() -> tuple[pd.DataFrame, pd.DataFrame]:
    iterations, visits = recorded(4, 0)
    visits.loc[visits["visit"] == 2, ["product_before", "product_after"]] *= 1.5
    return iterations, visits


@changed(JUDGING)
def test_disturbed_iterations_stay_found(other: Other, monkeypatch: pytest.MonkeyPatch) -> None:
    other.put(monkeypatch)
    quiet = readings(runnable_wait=0.02 * TIME)
    assert (disturbances.disturbed(quiet) == "").all()
    found = disturbances.disturbed(busy := with_another_process(readings(runnable_wait=0.0), 10, 20))
    assert marked(busy, found) == list(range(10, 20))
    assert (disturbances.disturbed(readings(steal=TIME)) == "steal").all()
    clocks = readings()
    clocks.loc[during(clocks, 7, 8), "frequency"] = 1.5e9  # of 2 GHz
    assert marked(clocks, disturbances.disturbed(clocks)) == [7]
    quota = pd.concat([readings(count=5, visit=visit) for visit in range(5)], ignore_index=True)
    quota = quota.assign(throttled=np.where(quota["visit"] == 2, TIME, 0.0))
    assert set(quota.loc[disturbances.disturbed(quota) == "quota", "visit"]) == {2}
    cut = pd.concat([readings(count=5, visit=visit) for visit in range(5)], ignore_index=True)
    scatter = np.random.default_rng(0).lognormal(math.log(0.1), 0.5, len(cut))
    there = (cut["visit"] == 2) & (cut["iteration"] == 3)
    cut["exposed_communication"] = np.where(there, 23.0, scatter)
    assert (disturbances.disturbed(cut) == "standstill").equals(there)
    iterations, visits = _slow_visit()
    left_out = disturbances.table(iterations, disturbances.with_sentinel(visits))
    assert set(left_out["visit"]) == {2}
    assert set(left_out["reason"]) == {"slow machine"}
    assert len(busy) == 2 * COUNT


# --- taking turns ----------------------------------------------------------------------------


def tried(disturbance: float) -> SideBySide:
    company, noise = SideBySide(4, 1), random.Random(1)
    for _ in range(session.TRIALS):
        alone = [noise.gauss(0, 0.002) for _ in range(4)]
        company.add([math.log1p(disturbance) + noise.gauss(0, 0.002) for _ in alone], alone)
    return company


@changed(twice(session, "TRIALS", "MARGIN"))
def test_who_is_visited_side_by_side_stays(other: Other, monkeypatch: pytest.MonkeyPatch) -> None:
    other.put(monkeypatch)
    assert tried(0.0).allowed
    assert not tried(0.1).allowed
    assert not tried(-0.1).allowed


@changed(others(turns_choice, "SUPERLINEAR_RATIO", 1.05, 1.2))
def test_speedups_that_no_machine_has_stay_doubtful(other: Other, monkeypatch: pytest.MonkeyPatch) -> None:
    other.put(monkeypatch)
    for ratio, doubtful in ((0.5, False), (0.95, False), (1.5, True)):
        one, two = (VisitedCell(train(nodes), medians=[0.0 - (nodes > 1) * math.log(2 * ratio)]) for nodes in (1, 2))
        assert Speedup(one, two, 0.02).doubtful == doubtful

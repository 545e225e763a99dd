import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nightly import fewer_examples

from stallpoint.errors import InputError
from stallpoint.models.scaling import noise
from stallpoint.models.scaling.extrapolation import OWN_RATES, PREDICTED_DOUBLINGS, extrapolate, extrapolated
from stallpoint.models.scaling.extrapolation import fit as fit_all
from stallpoint.models.scaling.laws import LAWS, Law, Model, models
from stallpoint.models.scaling.noise import Continuation, Likelihood
from stallpoint.models.scaling.posterior import posterior
from stallpoint.models.scaling.scaling_law_choice import choose
from stallpoint.models.scaling.series_placement import MAX_PLACEMENTS, Placements, Series, noise_grid

BY_NAME = {law.name: law for law in LAWS}
COUNTS = [1, 2, 4, 8, 16, 32]

counts = st.lists(st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64]), min_size=3, max_size=7, unique=True)
efficiencies = st.lists(st.floats(0.3, 1.1), min_size=7, max_size=7)


def table(
    workers: list[int], rates: np.ndarray | list[float], per_node: float = 1.0, batch: object = 32.0
) -> pd.DataFrame:
    return pd.DataFrame({
        "series": "s", "workers": workers, "workers_per_node": per_node, "batch_per_worker": batch,
        "samples_per_second": np.asarray(rates, dtype=np.float64),
    }).astype({"batch_per_worker": float})  # fmt: skip


def exact(law: Law, workers: list[int], *coefficients: float, single: float = 100.0) -> np.ndarray:
    """Samples per second of all workers, exactly by the law."""
    n = np.array(workers, dtype=np.float64)
    overhead = law.worker.overhead([np.array([[value]]) for value in coefficients], n)[0]
    return single * n / (1 + overhead)


def predicted(
    rates: pd.DataFrame, workers: list[int], fit_up_to: float = 1.0, per_node: float = 1.0, batch: object = 32.0
) -> pd.DataFrame:
    asked = table(workers, [np.nan] * len(workers), per_node, batch)
    found = extrapolate(pd.concat([rates, asked], ignore_index=True), fit_up_to)
    return found.set_index("workers").loc[workers]


def test_a_divided_mini_batch_leaves_what_a_step_takes_besides() -> None:
    """Of 256 samples, each of 0.01 s, in steps that take 0.02 s more: two counts say what eight nodes give."""
    counts = np.array([8, 16, 32, 64])
    rates = 256 / (256 / counts * 0.01 + 0.02)
    known = table([8, 16], rates[:2], 8.0, [32, 16])
    asked = table([32, 64], [np.nan] * 2, 8.0, [8, 4])
    found = extrapolate(pd.concat([known, asked], ignore_index=True), 1.0).set_index("workers").loc[[32, 64]]
    assert found["predicted"].to_numpy() == pytest.approx(rates[2:], rel=0.03)


# --- laws -----------------------------------------------------------------------------------------


def test_every_law_leaves_a_lone_worker_alone_and_costs_time_with_more() -> None:
    places = Placements(np.array([1.0, 2.0, 3.0, 64.0]), np.ones(4), np.full(4, np.nan))
    for law in LAWS:
        model = Model.of(law, places)
        times = model.log_time(np.random.default_rng(0).standard_normal((200, len(model.priors))), places)
        assert times[:, 0] == pytest.approx(0), law.name
        if law.name != "divided":
            assert (times >= -1e-12).all(), law.name
            assert (np.diff(times, axis=1) >= -1e-12).all(), law.name


def test_known_values_of_the_laws() -> None:
    # Amdahl: S(n) = 1 / (s + (1-s)/n); USL: S(n) = n / (1 + s(n-1) + k·n(n-1)).
    s, k, n = 0.1, 0.002, np.array([1, 2, 10, 100])
    amdahl, usl = BY_NAME["amdahl"], BY_NAME["usl"]
    assert exact(amdahl, list(n), s / (1 - s), single=1) == pytest.approx(n / (1 + s / (1 - s) * (n - 1)))
    assert exact(usl, list(n), s, k / s, single=1) == pytest.approx(n / (1 + s * (n - 1) + k * n * (n - 1)))
    assert exact(BY_NAME["ring"], [4], 0.1, 0.02, single=1) == pytest.approx(4 / (1 + 0.1 * (1.5 + 0.02 * 6)))
    # 0.2 of 1.2 divided among 4, and 0.05 for all of them.
    assert exact(BY_NAME["divided"], [4], 0.05, 0.2, single=1) == pytest.approx(4 / ((1 + 0.2 / 4) / 1.2 + 0.05))
    # Pairs on a fast link, and one three times as slow between them.
    pairs = exact(BY_NAME["slowest-link"], [1, 2, 4, 8], 0.1, 2.5, 2.0, single=1)
    assert pairs == pytest.approx([1, 2 / 1.1, 4 / (1 + 0.1 * 1.5 * 3), 8 / (1 + 0.1 * 1.75 * 3)])


def test_a_smaller_mini_batch_pays_the_floor_and_the_communication_more_often() -> None:
    places = Placements(np.array([1.0, 2.0]), np.array([1.0, 2.0]), np.array([64.0, 32.0]))
    model = Model.of(BY_NAME["constant"], places)
    # First step c = 0.05; floor 0.05/1.05 of the time of b = 64, twice for as many samples at b = 32.
    assert np.exp(model.log_time(np.zeros((1, 2)), places))[0] == pytest.approx([1, 1 + 0.05 / 1.05 + 2 * 0.05])


def test_what_hides_communication_gets_shorter_with_the_mini_batch() -> None:
    # Communication of 0.3 and an overlap of 0.3 at b = 64; at b = 32 two mini-batches send 0.6 in the same time.
    places = Placements(np.array([1.0, 2.0]), np.array([1.0, 2.0]), np.array([64.0, 32.0]))
    model = Model.of(BY_NAME["dag"], places)
    assert np.exp(model.log_time(np.zeros((1, 4)), places))[0, 1] == pytest.approx(1 + 0.05 / 1.05 + 0.3)


def test_a_batch_that_is_not_known_is_kept_or_split() -> None:
    unknown = Placements(np.array([8.0, 32.0]), np.full(2, np.nan), np.full(2, np.nan))
    split = replace(unknown, batch=np.array([4.0, 1.0]))
    read = {model.name: (model, prior) for model, prior in models([BY_NAME["log"], BY_NAME["usl"]], unknown)}
    assert {name: prior for name, (_, prior) in read.items()} == {"log": 0.5, "strong log": 0.5, "usl": 1.0}
    strong, z = read["strong log"][0], np.full((1, 3), 0.3)
    assert strong.log_time(z, unknown) == pytest.approx(Model.of(BY_NAME["log"], split).log_time(z, split))
    assert [model.name for model, _ in models([BY_NAME["log"]], split)] == ["log"]


def test_workers_per_node_count_only_where_they_make_a_difference() -> None:
    one_each = Placements.of(table([1, 2, 4], [1, 2, 4]))
    assert not Model.of(LAWS[0], one_each).across_nodes
    assert Model.of(LAWS[0], Placements.of(table([1, 2, 8, 16], [1] * 4, per_node=8))).across_nodes
    assert not Model.of(LAWS[0], Placements.of(table([1, 2, 8], [1] * 3, per_node=8))).across_nodes
    assert not Model.of(LAWS[0], Placements.of(table([1, 2, 8], [1] * 3, per_node=np.nan))).across_nodes
    assert Placements.of(table([7, 12, 4], [1] * 3, per_node=1.17)).nodes.tolist() == [6, 11, 4]


def test_a_nodes_link_carries_what_a_ring_of_all_workers_or_its_sharers_send() -> None:
    # Eight workers on 8, 4 and 2 nodes; at the medians of the priors.
    places = Placements(np.full(3, 8.0), np.array([8.0, 4.0, 2.0]), np.full(3, np.nan))

    def between(law: str) -> npt.NDArray[np.float64]:
        model = Model.of(BY_NAME[law], places)
        inside = BY_NAME[law].worker.overhead([np.full((1, 1), p.median) for p in BY_NAME[law].worker.priors],
                                              places.workers / places.nodes)  # fmt: skip
        return np.asarray(np.expm1(model.log_time(np.zeros((1, len(model.priors))), places)) - inside)[0]

    # First step 0.12, latency 0.02: 2·7/8 of the bytes and 14 steps, on whatever nodes.
    assert between("ring") == pytest.approx(np.full(3, 0.12 * (2 * 7 / 8 + 0.02 * 14)))
    # What does not grow with nodes grows with the sharers of a link, by 0.2 for two, 0.3 for four.
    assert between("saturation") == pytest.approx([0.12, 0.12 * 1.2, 0.12 * 1.3])


def test_the_page_names_every_law_and_coefficient() -> None:
    page = (Path(__file__).parents[3] / "docs/models/scaling-laws.md").read_text(encoding="utf-8")
    places = Placements(np.array([1.0, 8.0]), np.array([1.0, 4.0]), np.array([64.0, 8.0]))
    for law in LAWS:
        assert f"| `{law.name}` |" in page
        for prior in Model.of(law, places).priors:
            row = next(line for line in page.splitlines() if line.startswith("| ") and f"`{prior.name}`" in line)
            assert f"{prior.median:g}" in row, prior
            assert f"{prior.spread}" in row, prior


def test_what_fell_beyond_the_fast_links_is_not_expected_to_fall_again() -> None:
    # Rates of a worker: 1, 0.96, 0.70, and 0.67 for 8, where the slow link is crossed already.
    pairs = 0.04, 2.5, 6.0
    *known, beyond = exact(BY_NAME["slowest-link"], [1, 2, 4, 8], *pairs)
    found = predicted(table([1, 2, 4], known), [8])["predicted"].item()
    assert found == pytest.approx(beyond, rel=0.05)
    assert beyond / 8 == pytest.approx(known[2] / 4, rel=0.05)


# --- noise and posterior --------------------------------------------------------------------------


@given(efficiencies, st.floats(-5, 5))
def test_the_rate_of_a_lone_worker_is_integrated_out(values: list[float], shift: float) -> None:
    series = Series.of(table(list(range(1, 8)), np.arange(1, 8) * np.array(values)))
    likelihood = Likelihood.of(series, across_nodes=False)
    residuals = np.random.default_rng(0).normal(size=(5, len(series)))
    assert likelihood.log_density(residuals + shift) == pytest.approx(likelihood.log_density(residuals), abs=1e-4)


def test_the_density_of_residuals_is_that_of_their_differences() -> None:
    # Of two measurements, the difference is normal with 2·sigma² of noise and tau² of drift for the doubling.
    series = Series.of(table([1, 2], [100.0, 190.0]))
    difference = 0.04
    found = Likelihood.of(series, across_nodes=False).log_density(np.array([[0.0, difference]]))[0]
    for ((sigma, tau), probability), density in zip(noise_grid().items(), found, strict=True):
        variance = 2 * sigma**2 + tau**2
        wanted = -np.log(2 * np.pi * variance) / 2 - difference**2 / variance / 2
        assert density == pytest.approx(wanted + np.log(probability))


def test_the_drift_is_carried_forward_and_grows() -> None:
    series = Series.of(table([1, 2, 4], [1, 2, 4]))
    onward = Continuation.of(series, Placements.of(table([4, 8, 64], [1] * 3)), across_nodes=False)
    assert onward.gain.sum(-1) == pytest.approx(1)
    large = list(noise_grid()).index((0.003, 0.3))
    assert onward.gain[large, 1] == pytest.approx([0, 0, 1], abs=1e-3)
    assert onward.deviation[large] == pytest.approx([0.3 * 0, 0.3, 0.6], abs=0.006)


def test_the_posterior_agrees_with_a_grid() -> None:
    series = Series.of(table([1, 2, 4, 8], exact(BY_NAME["amdahl"], [1, 2, 4, 8], 0.02) * [1, 1.01, 0.98, 1.0]))
    law, likelihood = BY_NAME["amdahl"], Likelihood.of(series, across_nodes=False)
    model = Model.of(law, series.places)
    fitted = posterior(model, series, likelihood)
    z = np.linspace(-6, 6, 20_001)[:, None]
    log_density = noise.log_sum_exp(likelihood.log_density(series.log_rate + model.log_time(z, series.places)))
    density = np.exp(log_density - z[:, 0] ** 2 / 2) / np.sqrt(2 * np.pi)
    values, weights = fitted.model.coefficients(fitted.z), np.exp(noise.log_sum_exp(fitted.log_weight))
    assert fitted.log_evidence == pytest.approx(np.log(density.sum() * (z[1, 0] - z[0, 0])), abs=0.05)
    mean = (density * model.coefficients(z)[:, 0]).sum() / density.sum()
    assert weights @ values[:, 0] == pytest.approx(mean, rel=0.05)


@pytest.mark.parametrize(
    ("name", "coefficients"),
    [
        ("constant", (0.1,)),
        ("ring", (0.15, 0.02)),
        ("log", (0.08, 0.6)),
        ("divided", (0.02, 0.4)),
        ("amdahl", (0.02,)),
        ("usl", (0.01, 0.01)),
        ("linear", (0.05, 0.2)),
        ("saturation", (0.05, 12.0)),
    ],
)
def test_exact_laws_are_recovered_with_tight_intervals(name: str, coefficients: tuple[float, ...]) -> None:
    rates = exact(BY_NAME[name], COUNTS, *coefficients)
    found = predicted(table(COUNTS, rates), [64]).iloc[0]
    truth = exact(BY_NAME[name], [64], *coefficients)[0]
    assert found["predicted"] == pytest.approx(truth, rel=0.05)
    assert found["lower"] <= truth <= found["upper"]
    assert found["upper"] / found["lower"] < 1.25


@pytest.mark.parametrize("name", ["amdahl", "saturation"])
def test_a_law_that_others_cannot_imitate_is_chosen(name: str) -> None:
    coefficients = {"amdahl": (0.1,), "saturation": (0.02, 10.0)}[name]
    workers = [1, 2, 4, 8, 16, 32, 64, 128]
    series = Series.of(table(workers, exact(BY_NAME[name], workers, *coefficients)))
    choice = choose(series, series.places)
    best = choice.posteriors[int(choice.weights.argmax())]
    assert best.model.law.name in {name, "linear", "usl"} if name == "amdahl" else best.model.law.name == name


# --- properties of predictions --------------------------------------------------------------------


@fewer_examples(6)
@given(counts, efficiencies, st.floats(1e-6, 1e9))
def test_rates_in_another_unit_give_predictions_in_that_unit(
    workers: list[int], values: list[float], factor: float
) -> None:
    workers = sorted(workers)
    rates = np.array(workers) * values[: len(workers)]
    here, there = (extrapolate(table(workers, rates * scale), 0.5) for scale in (1.0, factor))
    for name in ("predicted", "lower", "upper"):
        assert there[name].to_numpy() == pytest.approx(here[name].to_numpy() * factor, rel=1e-6, nan_ok=True)
    assert there["law"].tolist() == here["law"].tolist()


@fewer_examples(6)
@given(counts, efficiencies)
def test_the_order_of_rows_does_not_matter(workers: list[int], values: list[float]) -> None:
    rates = table(workers, np.array(workers) * values[: len(workers)])
    shuffled = rates.sample(frac=1, random_state=1).reset_index(drop=True)
    pd.testing.assert_frame_equal(extrapolate(rates, 0.5), extrapolate(shuffled, 0.5))


@fewer_examples(4)
@given(counts, efficiencies)
def test_predictions_are_positive_and_inside_their_intervals(workers: list[int], values: list[float]) -> None:
    workers = sorted(workers)
    found = extrapolate(table(workers, np.array(workers) * values[: len(workers)]), 0.25)
    known = found.dropna(subset=["predicted"])
    assert (known["lower"] > 0).all()
    assert ((known["lower"] <= known["predicted"]) & (known["predicted"] <= known["upper"])).all()
    assert found["law"].str.len().gt(0).all()
    assert found.loc[found["predicted"].isna(), "law"].str.contains("not identifiable|no law describes").all()


def test_what_is_left_out_is_not_looked_at() -> None:
    rates = table([1, 2, 4, 8, 16], [100, 190, 370, 700, 1300])
    other = rates.assign(samples_per_second=[100, 190, 370, 5, 1e6])
    pd.testing.assert_frame_equal(extrapolate(rates, 0.25), extrapolate(other, 0.25))


def test_intervals_widen_with_the_extrapolation() -> None:
    found = predicted(table([1, 2, 4], [100, 190, 365]), [8, 16, 24, 32])
    assert np.diff(np.log(found["upper"] / found["lower"])).min() > 0


def test_a_count_that_noisy_rates_do_not_carry_to_is_refused_with_what_would_tell() -> None:
    noisy = table([1, 2, 4], [100, 170, 365])
    found = predicted(noisy, [8, 64, 512])
    assert found.loc[8, "predicted"] == pytest.approx(650, rel=0.15)
    assert found.loc[[64, 512], ["predicted", "lower", "upper"]].isna().all(axis=None)
    why = "not identifiable from workers 1, 2, 4: too wide an interval; a rate at 8 workers would tell"
    assert found.loc[[64, 512], "law"].tolist() == [why, why]
    longer = table([1, 2, 4, 8, 16, 32, 64], np.array([1, 1.9, 3.7, 7.2, 14.1, 27.5, 54.0]) * 100)
    assert predicted(longer, [256])["predicted"].item() > 15_000


def test_repeats_that_differ_say_how_noisy_rates_are() -> None:
    random = np.random.default_rng(1)
    widths = []
    for deviation in (0.003, 0.1):
        rates = np.repeat(exact(BY_NAME["log"], [1, 2, 4, 8], 0.05, 0.3), 8)
        often = table([1] * 8 + [2] * 8 + [4] * 8 + [8] * 8, rates * np.exp(deviation * random.standard_normal(32)))
        found = predicted(often, [16])
        widths.append(np.log(found["upper"] / found["lower"]).item())
    assert widths[1] > 3 * widths[0]
    assert widths[0] < 0.1


def test_a_known_time_of_computing_tells_what_communication_costs_already() -> None:
    n = [8, 16, 32]
    truth = exact(BY_NAME["log"], [*n, 128], 0.3, 0.5)
    rates = table(n, truth[:3]).assign(compute_seconds=0.32)
    asked = table([128], [np.nan])
    with_it, without = (
        extrapolate(pd.concat([known, asked], ignore_index=True)).set_index("workers").loc[128]
        for known in (rates, rates.drop(columns="compute_seconds"))
    )
    assert with_it["lower"] <= truth[3] <= with_it["upper"]
    assert with_it["upper"] / with_it["lower"] < 0.9 * without["upper"] / without["lower"]
    one = pd.concat([table([1], [100.0]), rates], ignore_index=True)
    measured = extrapolate(one.drop(columns="compute_seconds"))
    pd.testing.assert_frame_equal(extrapolate(one), measured)  # what was measured counts


def test_repeats_narrow_what_they_repeat() -> None:
    once = table([1, 2, 4], [100, 190, 365])
    often = pd.concat([once] * 20, ignore_index=True)
    widths = [np.log(found["upper"] / found["lower"]) for found in (predicted(r, [8]) for r in (once, often))]
    assert widths[1].item() < widths[0].item()


def test_ninety_per_cent_of_new_measurements_are_in_the_interval() -> None:
    random, inside = np.random.default_rng(0), 0
    for _ in range(20):
        rates = exact(BY_NAME["log"], [1, 2, 4, 8], random.lognormal(-3, 1), random.lognormal(-1.4, 0.7))
        rates *= np.exp(0.01 * random.standard_normal(4))
        found = extrapolate(table([1, 2, 4, 8], rates), 0.5).iloc[-1]
        inside += bool(found["lower"] <= rates[-1] <= found["upper"])
    # Were it 90 %, fewer than 15 of 20 would be inside for 1 % of all seeds; this is one seed.
    assert inside >= 15


# --- planted ways of scaling ------------------------------------------------------------------


def test_communication_that_is_hidden_up_to_some_nodes_is_exposed_beyond() -> None:
    # A server's link takes 0.05 for each worker, and the backward pass hides 0.4: nothing is lost up to 8 workers.
    n = np.array([*COUNTS, 64, 128])
    truth = 100 * n / (1 + np.maximum(0, 0.05 * n - 0.4))
    found = predicted(table(list(n[:-1]), truth[:-1]), [128]).iloc[0]
    assert found["lower"] <= truth[-1] <= found["upper"]
    assert found["predicted"] == pytest.approx(truth[-1], rel=0.1)


def test_a_rate_of_each_worker_that_rises_goes_on_to_rise_by_less() -> None:
    # 0.3 of a lone worker's iteration is divided among all: each is 1.25 times as fast on four, and never 1.43 times.
    n = np.array([1, 2, 4, 8, 16, 64])
    truth = 100 * n / (0.7 + 0.3 / n)
    found = predicted(table(list(n[:-1]), truth[:-1]), [64]).iloc[0]
    assert found["predicted"] == pytest.approx(truth[-1], rel=0.03)
    assert found["lower"] <= truth[-1] <= found["upper"]


def test_a_server_that_is_full_inside_a_node_does_not_serve_twice_as_many_on_two() -> None:
    # One server feeds ten workers; nodes of 16, so that two nodes were measured.
    n = np.array([1, 2, 4, 8, 16, 32, 64])
    truth = 100 * np.minimum(n, 10.0)
    known = table(list(n[:-1]), truth[:-1], per_node=16)
    found = predicted(known, [64], per_node=16).iloc[0]
    assert found["predicted"] == pytest.approx(1000, rel=0.05)
    assert found["upper"] < 1200


def test_a_node_that_is_full_may_or_may_not_be_doubled_by_another() -> None:
    # What saturates inside the only node that was measured is the node's, or one for all.
    known = table([1, 2, 4, 8, 16], [100.0, 200, 400, 800, 1000], per_node=16)
    asked = table([32], [np.nan], 16)
    (found,) = fit_all(pd.concat([known, asked], ignore_index=True))
    assert found.choice
    draws = np.exp(found.choice.predict(Placements.of(asked))[:, 0]) * 32
    assert np.quantile(draws, 0.05) < 1100
    assert np.quantile(draws, 0.95) > 1700


@pytest.mark.parametrize("strong", [False, True])
def test_strong_or_weak_scaling_decides_and_is_asked_for(strong: bool) -> None:
    # 0.06 of the iteration on 8 workers, once in each: with a split batch it is paid twice as often with each doubling.
    n = np.array([8, 16, 32, 128])
    truth = 100 * n / (1 + 0.06 * (n / 8 if strong else np.ones(4)) * (n > 8))
    truth *= [1, 1.004, 0.997, 1]
    batches = 256 / n if strong else np.full(4, 32.0)
    told = predicted(table(list(n[:-1]), truth[:-1], batch=batches[:-1]), [128], batch=batches[-1:]).iloc[0]
    assert told["lower"] <= truth[-1] <= told["upper"]
    assert told["predicted"] == pytest.approx(truth[-1], rel=0.15)
    assert "batch_per_worker" not in told["law"]


def test_both_readings_are_in_the_interval_where_nothing_tells() -> None:
    n = [8, 16, 32, 64]
    rates = table(n, [800, 1530, 2980, np.nan], batch=np.nan)
    batches = {"weak": np.full(4, 32.0), "strong": 256 / np.array(n)}
    of_each = {name: extrapolate(rates.assign(batch_per_worker=b)).iloc[-1] for name, b in batches.items()}
    found = extrapolate(rates)
    largest = found.iloc[-1]
    assert of_each["strong"]["predicted"] < 0.95 * of_each["weak"]["predicted"]
    for one in of_each.values():
        assert largest["lower"] < one["predicted"] < largest["upper"]
    assert re.search(
        r"batch_per_worker would tell weak from strong scaling: [\d,]+ or [\d,]+ at 64 workers", largest["law"]
    )
    assert not found["law"].iloc[:3].str.contains("batch_per_worker").any()


# --- placements -----------------------------------------------------------------------------------


def placed(slow_link: float) -> pd.DataFrame:
    """All placements of 1 to 4 workers on nodes, where only crossing nodes costs time; asked for 8 on 1 and on 8."""
    rows = [(n, k) for n in range(1, 5) for k in range(1, n + 1)]
    workers, nodes = (np.array(column) for column in zip(*rows, strict=True))
    return table(list(workers), workers * 100 / np.where(nodes > 1, 1 + slow_link, 1.0), per_node=workers / nodes)


@pytest.mark.parametrize("slow_link", [0.05, 0.5])
def test_links_inside_and_between_nodes_are_told_apart(slow_link: float) -> None:
    found = {}
    for nodes in (1, 8):
        asked = table([8], [np.nan], per_node=8 / nodes)
        rates = pd.concat([placed(slow_link), asked], ignore_index=True)
        found[nodes] = extrapolate(rates).set_index("workers").loc[8]
    assert found[1]["predicted"] == pytest.approx(800, rel=0.05)
    assert found[8]["predicted"] == pytest.approx(800 / (1 + slow_link), rel=0.1)
    assert found[8]["lower"] <= 800 / (1 + slow_link) <= found[8]["upper"]


def test_a_count_with_several_placements_gets_one_prediction_that_spans_them() -> None:
    rates = pd.concat([placed(0.5), *(table([8], [np.nan], per_node=8 / k) for k in (1, 8))], ignore_index=True)
    found = extrapolate(rates)
    assert found["workers"].tolist() == [1, 2, 3, 4, 8]
    eight = found.set_index("workers").loc[8]
    assert eight["lower"] < 560
    assert eight["upper"] > 760


# --- what the data cannot tell --------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "named"), [([1], "workers 1"), ([4, 4, 4], "workers 4")])
def test_too_few_counts_are_refused_by_name(workers: list[int], named: str) -> None:
    found = extrapolate(table(workers, np.array(workers) * 100.0))
    assert found["law"].unique().tolist() == [f"not identifiable from {named}"]
    assert found[["predicted", "lower", "upper"]].isna().all(axis=None)


def test_a_series_without_any_rate_is_refused() -> None:
    assert extrapolate(table([1, 2], [np.nan, np.nan]))["law"].unique().tolist() == [
        "not identifiable: nothing measured"
    ]


def test_rates_that_no_law_describes_are_refused() -> None:
    found = extrapolate(table([1, 2, 4, 8], [1e9, 1, 1e9, 1]))
    assert found["law"].str.startswith("no law describes the rate at").all()
    assert found["predicted"].isna().all()


def test_equal_rates_are_a_limit_that_is_reached() -> None:
    found = predicted(table([1, 2, 4, 8], [100.0] * 4), [64]).iloc[0]
    assert found["predicted"] == pytest.approx(100, rel=0.02)


def test_a_long_series_is_thinned_and_predicted_at_every_count() -> None:
    workers = list(range(1, 3001))
    rates = table(workers, exact(BY_NAME["log"], workers, 0.05, 0.5))
    assert len(Series.of(rates)) <= MAX_PLACEMENTS
    found = extrapolate(rates, 0.25)
    assert found["workers"].tolist() == workers
    assert found["predicted"].iloc[-1] == pytest.approx(rates["samples_per_second"].iloc[-1], rel=0.02)


def test_many_series_say_how_far_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    one = table([1], [100])  # of which no law is fitted
    extrapolate(pd.concat([one.assign(series=f"s{place}") for place in range(99)]))
    assert capsys.readouterr().err == ""
    extrapolate(pd.concat([one.assign(series=f"s{place}") for place in range(100)]))
    assert re.search(r"^scaling laws of series 100/100 after", capsys.readouterr().err, re.MULTILINE)


def test_what_draws_are_wanted_does_not_change_them() -> None:
    series = Series.of(table(COUNTS, 100 * np.array(COUNTS) ** 0.9))
    places = Placements(np.array([64.0]), np.array([64.0]), np.array([np.nan]))
    chosen = choose(series, places)
    drawn, some = chosen.posteriors[0], np.array([7, 1999, 0])
    onward = Continuation.of(series, places, across_nodes=False)
    every = drawn.predict(places, onward, seed=3)
    assert drawn.predict(places, onward, seed=3, which=some) == pytest.approx(every[some], rel=1e-12)


def test_a_name_for_each_row_is_taken_for_a_mistake() -> None:
    rates = pd.DataFrame({"series": [str(row) for row in range(20_001)]})
    with pytest.raises(InputError, match="20001 series"):
        extrapolate(rates)


# --- tables ---------------------------------------------------------------------------------------


def test_external_tables_are_predicted_beyond_and_checked_by_what_is_left_out() -> None:
    rates = table(COUNTS, exact(BY_NAME["log"], COUNTS, 0.05, 0.3))
    tables = extrapolated({"there": rates, OWN_RATES: rates})
    beyond = tables["extrapolations"]
    assert beyond["table"].unique().tolist() == ["there"]
    assert beyond["workers"].tolist() == COUNTS + [32 * 2**power for power in range(1, PREDICTED_DOUBLINGS + 1)]
    assert beyond["measured"].notna().sum() == len(COUNTS)
    checked = tables["law_validation"]
    assert checked.groupby("table")["workers"].apply(list).to_dict() == {"there": [16, 32], OWN_RATES: [16, 32]}
    assert (checked["fitted_up_to"] == 8).all()
    assert checked["error"].to_numpy() == pytest.approx(checked["predicted"] / checked["measured"] - 1)
    assert checked["covered"].all()


def test_under_strong_scaling_the_mini_batch_is_split_further() -> None:
    batches, workers = np.array([64, 32, 16, 8]), [1, 2, 4, 8]
    # Half of the time of b = 64 does not get shorter with b: T = 1/2 + b/128.
    rates = table(workers, np.array(workers) * batches / (0.5 + batches / 128), batch=batches)
    beyond = extrapolated({"there": rates})["extrapolations"].set_index("workers")
    assert beyond.loc[16, "predicted"] == pytest.approx(16 * 4 / (0.5 + 4 / 128), rel=0.1)


def test_no_tables_give_empty_tables() -> None:
    assert all(found.empty for found in extrapolated({}).values())
    assert all(found.empty for found in extrapolated({OWN_RATES: table([], [])}).values())


@pytest.mark.parametrize("counts", [[1, 2], [8, 16], [4, 16]])
def test_two_counts_leave_the_growth_to_the_priors(counts: list[int]) -> None:
    """A loss that stays, and one that comes again, are both in the interval; how far is too far is said."""
    last = counts[-1]
    rates = np.array(counts) * 100.0 * np.array([1.0, 0.9])
    found = extrapolate(table([*counts, 2 * last, 64 * last], [*rates, np.nan, np.nan])).set_index("workers")
    low, high = found.loc[2 * last, ["lower", "upper"]]
    assert low < 2 * last * 80 < 2 * last * 90 < high < 3 * low
    assert np.isnan(found.loc[64 * last, "predicted"])
    assert "too wide an interval" in found.loc[64 * last, "law"]

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nightly import first_by_day
from synthetic import Truth, study

from stallpoint.base.statistics import estimate
from stallpoint.errors import InputError
from stallpoint.models.terms import communication
from stallpoint.models.terms.communication import Communication, Fit, all_reduce_seconds
from stallpoint.models.terms.reductions import REDUCTION_LAWS, LawBySize, law_of
from stallpoint.strategies.options import ALL_REDUCE, OPERATIONS

TRUTH = Truth()
SCHEME = ("cpu", "mpi", "library", ALL_REDUCE)


def calls(nodes: Sequence[int] = (2, 4), workers_per_node: int = 1) -> pd.DataFrame:
    tables = study(
        TRUTH,
        nodes=nodes,
        workers_per_node=workers_per_node,
        syncs=("naive",),
        prefetches=(0,),
        storages=("local",),
        seed=1,
    )
    return tables["collectives"]


@pytest.fixture(scope="module")
def fits() -> Communication:
    return communication.fit(calls(), seed=0)[SCHEME]


def test_each_node_count_has_the_true_latency_and_bandwidth(fits: Communication) -> None:
    for (ranks, _), fit in fits.fits_by_placement.items():
        assert estimate(fit.alpha)[0] == pytest.approx(2 * (ranks - 1) * TRUTH.alpha, rel=0.05)
        assert estimate(fit.beta)[0] == pytest.approx(2 * (ranks - 1) / ranks * TRUTH.beta, rel=0.05)
        assert fit.points == 5
        assert fit.residual < 0.02


def test_the_ring_reaches_node_counts_nobody_ran(fits: Communication) -> None:
    assert fits.over_nodes.alpha[0] == pytest.approx(TRUTH.alpha, rel=0.05)
    assert fits.over_nodes.beta[0] == pytest.approx(TRUTH.beta, rel=0.05)
    for ranks in (8, 64):
        seconds = all_reduce_seconds(fits.at(ranks), ranks, [2**10, 2**27])
        expected = [TRUTH.all_reduce(ranks, 2**10), TRUTH.all_reduce(ranks, 2**27)]
        assert seconds[0] == pytest.approx(expected, rel=0.05)


def test_intervals_hold_the_fit_and_little_more(fits: Communication) -> None:
    for fit in (*fits.fits_by_placement.values(), fits.over_nodes):
        value, low, high = estimate(fit.beta)
        assert low <= value <= high
        assert (high - low) / value < 0.1


def test_nothing_is_communicated_by_one_rank_or_of_nothing(fits: Communication) -> None:
    assert (all_reduce_seconds(fits.over_nodes, 1, [2**20]) == 0).all()
    assert (all_reduce_seconds(fits.at(2), 2, [0]) == 0).all()


def fit_of_two_ranks(sizes: np.ndarray, seconds: np.ndarray) -> Fit:
    rows = pd.DataFrame({"message_bytes": sizes, "seconds": seconds}).assign(
        **dict(zip(("hardware", "backend", "reduction", "operation"), SCHEME, strict=True)),
        nodes=2, ranks=2, cell="c", repeat=1, visit=1, rank=0, sample=0, warmup=False, calls=1,
    )  # fmt: skip
    return communication.fit(rows, seed=0)[SCHEME].fits_by_placement[2, 1]


def test_small_messages_count_as_much_as_large_ones() -> None:
    # Ordinary least squares would let the latency absorb an error of the largest message.
    sizes = np.array([1e3, 1e4, 1e5, 1e8])
    seconds = 1e-4 + 1e-9 * sizes
    seconds[-1] *= 1.2
    fit = fit_of_two_ranks(sizes, seconds)
    assert fit.alpha[0] == pytest.approx(1e-4, rel=0.1)


def test_large_messages_are_not_given_up_for_small_ones() -> None:
    # As measured in shared memory: four sizes fit in a cache and go ten times as fast as the largest.
    sizes = np.array([2**12, 2**16, 2**20, 2**22, 2**27])
    seconds = 1e-5 + np.where(sizes < 2**23, 1e-10, 1e-9) * sizes
    fit = fit_of_two_ranks(sizes, seconds)
    assert all_reduce_seconds(fit, 2, [2**27])[0] == pytest.approx(seconds[-1], rel=0.3)


def test_messages_inside_a_node_do_not_speak_for_the_ring() -> None:
    inside = calls(nodes=(1,), workers_per_node=2).assign(seconds=lambda rows: rows["seconds"] / 50)
    between = calls(nodes=(2, 4), workers_per_node=2)
    fits = communication.fit(pd.concat([inside, between]), seed=0)[SCHEME]
    assert fits.over_nodes.beta[0] == pytest.approx(TRUTH.beta, rel=0.05)
    assert fits.at(1, 2).ranks == 2
    alone = communication.fit(inside, seed=0)[SCHEME]
    assert alone.over_nodes is None  # links of one level tell nothing of the other
    assert alone.at(1, 2).ranks == 2


def test_rows_of_the_table(fits: Communication) -> None:
    rows = communication.table({SCHEME: fits})
    assert [(row["fit"], row["nodes"], row["ranks"], row["points"]) for row in rows] == [
        ("place", 2, 2, 5), ("place", 4, 4, 5), ("ring", 4, 4, 10),
    ]  # fmt: skip
    assert [(row["piece"], row["from_bytes"]) for row in rows] == [(0, 0.0)] * 3


SIZES = 2 ** np.arange(10, 27, 2)


def records(seconds_at: Callable[[int, np.ndarray], np.ndarray], nodes: Sequence[int], workers: int) -> pd.DataFrame:
    """Three samples of every size at every node count, without noise."""
    labels = dict(zip(("hardware", "backend", "reduction", "operation"), SCHEME, strict=True))
    frames = [
        pd.DataFrame({
            **labels, "nodes": n, "ranks": n * workers, "cell": f"collectives/nodes~{n}", "repeat": 1, "visit": 1,
            "rank": 0, "message_bytes": SIZES, "sample": sample, "warmup": False, "calls": 2,
            "seconds": 2 * seconds_at(n, SIZES.astype(float)),
        })
        for n in nodes for sample in range(3)
    ]  # fmt: skip
    return pd.concat(frames, ignore_index=True)


def in_memory(sizes: np.ndarray) -> np.ndarray:
    return 5e-6 + 0.1e-9 * sizes


def node_by_node(n: int, sizes: np.ndarray) -> np.ndarray:
    """Inside each node first, then a ring of nodes over links ten times as slow."""
    return in_memory(sizes) + 2 * (n - 1) * 50e-6 + 2 * (n - 1) / n * 1e-9 * sizes


def rank_by_rank(n: int, sizes: np.ndarray) -> np.ndarray:
    """One ring of all ranks, four on each node."""
    return in_memory(sizes) if n == 1 else 2 * (4 * n - 1) * 50e-6 + 2 * (4 * n - 1) / (4 * n) * 1e-9 * sizes


@pytest.mark.parametrize(("truth", "law"), [(node_by_node, "hierarchical"), (rank_by_rank, "ring")])
def test_whether_nodes_reduce_inside_first_comes_out_of_the_records(
    truth: Callable[[int, np.ndarray], np.ndarray], law: str
) -> None:
    fits = communication.fit(records(truth, (1, 2, 4, 8), workers=4), seed=0)[SCHEME]
    assert fits.over_nodes.laws.name == law
    if law == "hierarchical":
        assert fits.over_nodes.inside.at(4).beta[0] == pytest.approx(0.1e-9, rel=0.01)
    for n in (16, 64):
        seconds = all_reduce_seconds(fits.at(n, 4), 4 * n, [2**10, 2**27])[0]
        assert seconds == pytest.approx(truth(n, np.array([2.0**10, 2.0**27])), rel=0.01)


@pytest.mark.parametrize("law", sorted(set(REDUCTION_LAWS) - {"place", "hierarchical"}))
def test_every_scheme_is_found_again_and_followed(law: str) -> None:
    def truth(n: int, sizes: np.ndarray) -> np.ndarray:
        p = np.array(float(n))
        return 30e-6 * REDUCTION_LAWS[law].latency(p) + 0.5e-9 * REDUCTION_LAWS[law].bandwidth(p) * sizes

    named = {"operation": law} if law in OPERATIONS else {"reduction": law}
    rows = records(truth, (2, 4, 8), workers=1).assign(**named)
    scheme = "cpu", "mpi", named.get("reduction", "library"), named.get("operation", ALL_REDUCE)
    fits = communication.fit(rows, seed=0)[scheme]
    assert fits.over_nodes.laws.name == law
    predicted = all_reduce_seconds(fits.at(64), 64, [2**10, 2**28])[0]
    assert predicted == pytest.approx(truth(64, np.array([2.0**10, 2.0**28])), rel=1e-3)


SWITCHED = LawBySize(("recursive-doubling", "rabenseifner"), (2.0**15,))


def of_library(law: LawBySize, nodes: Sequence[int], seed: int) -> pd.DataFrame:
    """Calls by four visits that lie 3 % apart, half of it common to all sizes."""
    random = np.random.default_rng(seed)
    parts = []
    for visit in range(1, 5):
        rows = records(lambda n, sizes: planted(law, n, sizes), nodes, workers=1).assign(visit=visit)
        common, own = (0.02 * random.standard_normal(shape) for shape in ((len(nodes),), (len(nodes), len(SIZES))))
        factor = pd.DataFrame(np.exp(common[:, None] + own), index=list(nodes), columns=SIZES).stack()
        of_row = factor.loc[list(zip(rows["nodes"], rows["message_bytes"], strict=True))].to_numpy()
        parts.append(rows.assign(seconds=rows["seconds"] * of_row))
    return pd.concat(parts, ignore_index=True)


def planted(law: LawBySize, n: int, sizes: np.ndarray) -> np.ndarray:
    latency, bandwidth = law.factors(np.array(float(n)), sizes)
    return 20e-6 * latency + 1e-9 * bandwidth * sizes


@pytest.mark.parametrize("nodes", [pytest.param((2, 4), marks=pytest.mark.night), (2, 4, 8)])
@pytest.mark.parametrize(
    "law", first_by_day([SWITCHED, LawBySize(("ring",)), LawBySize(("binary-tree",))]), ids=lambda law: law.laws[-1]
)
def test_the_law_of_a_library_is_found_for_each_size(law: LawBySize, nodes: Sequence[int]) -> None:
    sizes = SIZES.astype(float)
    held, errors = [], []
    for seed in range(3):
        fits = communication.fit(of_library(law, nodes, seed), seed)[SCHEME]
        found = all_reduce_seconds(fits.at(64), 64, sizes)
        ends = [estimate(found[:, place])[1:] for place in range(len(sizes))]
        truth = planted(law, 64, sizes)
        held += [low <= one <= high for (low, high), one in zip(ends, truth, strict=True)]
        errors += list(np.abs(found[0] / truth - 1))
    assert np.mean(held) >= 0.85
    assert np.median(errors) <= 0.05


def test_from_one_node_count_every_law_is_possible() -> None:
    fits = communication.fit(of_library(LawBySize(("ring",)), (2,), seed=0), seed=0)[SCHEME]
    assert fits.over_nodes.laws.name.startswith("average (")
    _, low, high = estimate(all_reduce_seconds(fits.at(64), 64, SIZES[0]))
    measured, least, _ = estimate(all_reduce_seconds(fits.at(2), 2, SIZES[0]))
    steps = [
        REDUCTION_LAWS[law].latency(np.array(64.0)) / REDUCTION_LAWS[law].latency(np.array(2.0))
        for law in ("binary-tree", "ring")
    ]
    assert low < steps[0] * measured
    assert high > 0.9 * steps[1] * measured
    assert least > 0.8 * measured  # what was measured is as certain as ever


def test_a_switch_is_found_and_named_where_it_is() -> None:
    rows = records(lambda n, sizes: planted(SWITCHED, n, sizes), (2, 4, 8), workers=1)
    many = pd.concat([rows.assign(visit=visit, seconds=rows["seconds"] * (1 + visit / 1000)) for visit in range(1, 9)])
    fits = communication.fit(many, seed=0)[SCHEME]
    assert fits.over_nodes.laws.value == SWITCHED
    assert communication.table({SCHEME: fits})[-1]["fit"] == SWITCHED.name
    assert SWITCHED.name == "recursive-doubling below 32768 B, rabenseifner"
    assert all_reduce_seconds(fits.at(64), 64, [2**16])[0] == pytest.approx(planted(SWITCHED, 64, [2.0**16]), rel=0.01)


def test_a_forced_scheme_keeps_its_law_whatever_fits_better() -> None:
    rows = records(lambda n, sizes: planted(SWITCHED, n, sizes), (2, 4, 8), workers=1).assign(reduction="ring")
    laws = communication.fit(rows, seed=0)["cpu", "mpi", "ring", ALL_REDUCE].over_nodes.laws
    assert {option.laws for option in laws.options} == {("ring",)}
    assert laws.name.startswith("ring")


def test_messages_beside_computing_go_by_the_same_laws() -> None:
    links = communication.fit(calls(), 0, contention(3.0, 0.4))[SCHEME]
    assert links.while_computing is not None
    assert links.while_computing.longer.over_nodes.laws is links.over_nodes.laws


@given(st.integers(2, 64), st.integers(1, 64))
def test_servers_of_shares_lie_between_one_server_and_one_on_every_rank(ranks: int, servers: int) -> None:
    p = np.array(float(ranks))
    law, one, all_of_them = (
        law_of(name) for name in (f"sharded-servers-{servers}", "parameter-server", "sharded-servers")
    )
    assert law is not None
    assert one is not None
    assert all_of_them is not None
    assert law.latency(p) == one.latency(p) == all_of_them.latency(p)
    # A server's link carries its share of every message from and to each of the others.
    assert law.bandwidth(p) == pytest.approx(one.bandwidth(p) / min(servers, ranks))
    if servers >= ranks:
        assert law.bandwidth(p) == all_of_them.bandwidth(p)


def test_schemes_on_two_ranks_are_what_the_textbook_says() -> None:
    two = np.array(2.0)
    factors = {name: (float(law.latency(two)), float(law.bandwidth(two))) for name, law in REDUCTION_LAWS.items()}
    assert factors["ring"] == factors["rabenseifner"] == factors["sharded-servers"] == (2, 1)
    assert factors["recursive-doubling"] == (1, 1)
    assert factors["binary-tree"] == factors["parameter-server"] == (2, 2)


@pytest.mark.parametrize("law", sorted(REDUCTION_LAWS))
def test_no_scheme_gets_cheaper_with_more_ranks(law: str) -> None:
    p = np.arange(2.0, 300.0)
    for factor in (REDUCTION_LAWS[law].latency(p), REDUCTION_LAWS[law].bandwidth(p)):
        assert (np.diff(factor) >= 0).all()


@pytest.mark.parametrize("wrong", [0.0, -1e-3, np.nan, np.inf])
def test_impossible_times_are_refused_by_name(wrong: float) -> None:
    rows = records(node_by_node, (2,), workers=1)
    rows.loc[5, "seconds"] = wrong
    with pytest.raises(InputError, match=r"collectives: seconds is .* of cell collectives/nodes~2"):
        communication.fit(rows, seed=0)


def test_one_message_size_is_no_answer_for_others() -> None:
    rows = records(node_by_node, (2,), workers=1)
    fits = communication.fit(rows[rows["message_bytes"] == SIZES[0]], seed=0)[SCHEME]
    assert np.isnan(all_reduce_seconds(fits.at(2), 2, [2**20])).all()
    assert (all_reduce_seconds(fits.at(2), 2, [0]) == 0).all()


def test_equal_times_at_all_sizes_are_all_latency() -> None:
    rows = records(lambda n, sizes: np.full_like(sizes, 1e-3), (2,), workers=1)
    fit = communication.fit(rows, seed=0)[SCHEME].fits_by_placement[2, 1]
    assert fit.alpha[0] == pytest.approx(1e-3)
    assert fit.beta[0] == pytest.approx(0, abs=1e-15)


def test_nothing_recorded_gives_no_fit() -> None:
    assert communication.fit(records(node_by_node, (2,), workers=1).iloc[:0], seed=0) == {}


def test_what_gradients_put_on_a_link() -> None:
    fits = communication.fit(records(node_by_node, (1, 2, 4), workers=4), seed=0)[SCHEME]
    sent = communication.traffic(fits.over_nodes, 32, [10e6, 20e6])
    assert sent.bandwidth[0] == pytest.approx(1e9, rel=0.01)
    assert sent.gradient_bytes == pytest.approx(2 * 7 / 8 * 30e6)


def contention(slower: float, share: float) -> pd.DataFrame:
    """Messages `slower` times as long as on idle nodes, of which computing loses a `share`."""
    calls_alone = calls()
    piece, messages = 1e-3, 5
    seconds = messages * slower * calls_alone["seconds"] / calls_alone["calls"]
    return calls_alone.drop(columns="seconds").assign(
        calls=messages, seconds=seconds, operations=(1 - share) * seconds / piece, computing=seconds,
        isolated_operations=20, isolated_computing=20 * piece,
    )  # fmt: skip


def test_what_messages_and_computing_take_from_each_other_is_fitted() -> None:
    links = communication.fit(calls(), 0, contention(3.0, 0.4))[SCHEME]
    assert links.while_computing is not None
    for ranks in (2, 4, 8):
        size = [2**12, 2**25]
        alone = all_reduce_seconds(links.at(ranks), ranks, size)[0]
        beside = alone + all_reduce_seconds(links.while_computing.longer.at(ranks), ranks, size)[0]
        work = all_reduce_seconds(links.while_computing.work.at(ranks), ranks, size)[0]
        assert beside / alone == pytest.approx([3.0, 3.0], rel=0.05)
        # The slowest rank says how long a message takes, all of them what it costs: here they wait for 0.8 and 1 of it.
        assert work / beside == pytest.approx([0.4 * (1.8 / 2 if ranks == 2 else 3.4 / 4)] * 2, rel=0.07)


def test_a_faster_link_leaves_what_computing_and_messages_take_from_each_other_as_it_is() -> None:
    links = communication.fit(calls(), 0, contention(3.0, 0.4))[SCHEME]
    assert links.changed(latency=1, bandwidth=2).while_computing == links.while_computing


def test_work_that_noise_hides_is_no_less_than_none() -> None:
    gaining = contention(3.0, 0.4).assign(operations=lambda rows: 2 * rows["operations"])
    links = communication.fit(calls(), 0, gaining)[SCHEME]
    assert links.while_computing is not None
    both = links.while_computing.work, links.while_computing.longer
    work, longer = (all_reduce_seconds(of.at(2), 2, [2**20])[0, 0] for of in both)
    assert 0 < work < 0.01 * longer


def test_schemes_without_contention_records_have_none() -> None:
    assert communication.fit(calls(), 0)[SCHEME].while_computing is None
    rows = contention(3.0, 0.4)
    for too_few in (rows.iloc[:0], rows[rows["message_bytes"] == 2**10], rows.assign(message_bytes=2**11)):
        assert communication.fit(calls(), 0, too_few)[SCHEME].while_computing is None


def test_computing_that_took_no_time_is_refused() -> None:
    with pytest.raises(InputError, match=r"contention: isolated_computing is 0.* of cell collectives/"):
        communication.fit(calls(), 0, contention(3.0, 0.4).assign(isolated_computing=0.0))

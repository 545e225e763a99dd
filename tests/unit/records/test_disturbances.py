"""Which iterations something else disturbed, by readings that are made up."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_readings import COUNT, TIME, during, marked, recorded, rows, with_another_process

from stallpoint.records.disturbances import (
    MIN_SLOWDOWN,
    cpu_numbers,
    disturbed,
    joint_reasons,
    mostly_disturbed,
    other_process_seconds,
    sentinels,
    table,
    with_sentinel,
    without,
)


def test_a_job_does_not_disturb_itself() -> None:
    waiting = rows(runnable_wait=0.4 * TIME, involuntary_switches=100)
    assert (disturbed(waiting) == "").all()
    assert other_process_seconds(waiting).abs().max() < 1e-9


def test_another_process_is_found_where_it_was_and_disturbs_all_ranks() -> None:
    iterations = with_another_process(rows(runnable_wait=0.0), 10, 20)
    reasons = disturbed(iterations)
    assert marked(iterations, reasons) == list(range(10, 20))
    assert marked(iterations, reasons, rank=1) == []
    assert set(reasons) == {"", "another process"}
    assert marked(iterations, joint_reasons(iterations, reasons), rank=1) == list(range(10, 20))


def test_another_process_that_nobody_waits_for_disturbs_no_single_thread() -> None:
    beside = rows(cpus="0-3", runnable_wait=0.0)
    beside["node_busy"] += TIME
    assert (disturbed(beside) == "").all()


def test_a_team_of_threads_is_disturbed_by_who_takes_more_than_is_free() -> None:
    for cpus, expected in (("0-7", False), ("0-3", True)):  # two ranks of two threads each
        team = rows(cpus=cpus, threads=2, runnable_wait=0.0, process_time=2 * TIME, node_busy=4.5 * TIME)
        assert (disturbed(team) != "").all() == expected
        assert (disturbed(team) != "").any() == expected


@pytest.mark.parametrize("error", [0.005, 0.02])
def test_errors_of_the_counter_are_no_process(error: float) -> None:
    """Whatever it is off by, up to its error at any time, nothing is found; iterations are shorter than the error."""
    random = np.random.default_rng(0)
    for time in (0.002, 0.01, 0.05):
        iterations = rows(count=200, time=time, node_busy_error=error, runnable_wait=0.5 * time)
        read = random.uniform(-error / 2, error / 2, 201)  # the same kernel, seen by both
        iterations["node_busy"] += np.tile(np.diff(read), 2)
        assert (disturbed(iterations) == "").all()


@pytest.mark.parametrize("time", [0.004, 0.02, 0.2])
def test_coarse_counters_find_a_process_but_for_the_edges(time: float) -> None:
    """/proc/stat in whole steps of 10 ms; the rank waits only while the other one runs."""
    count = round(6 / time)
    begin, end = count // 3, 2 * count // 3
    iterations = with_another_process(rows(count=count, time=time, node_busy_error=0.02, runnable_wait=0.0), begin, end)
    for rank in (0, 1):
        mine = iterations["rank"] == rank
        total = np.floor(iterations.loc[mine, "node_busy"].cumsum() * 100 + 1e-9) / 100
        iterations.loc[mine, "node_busy"] = np.diff(total, prepend=0.0)
    assert marked(iterations, disturbed(iterations)) == list(range(begin, end))


def test_ranks_on_other_kernels_and_cpus_are_not_subtracted() -> None:
    for column in ("kernel", "cpus"):
        iterations = rows(node_busy=TIME)
        iterations[column] = np.where(iterations["rank"] == 0, "0", "1")
        assert other_process_seconds(iterations).abs().max() < 1e-9
    overlapping = rows(node_busy=2 * TIME)
    overlapping["cpus"] = np.where(overlapping["rank"] == 0, "0-1", "1-2")
    assert other_process_seconds(overlapping).abs().max() < 1e-9


def test_stolen_time_counts_by_cpu() -> None:
    for share, expected in ((0.5, True), (0.02, False)):
        iterations = rows(steal=2 * share * TIME)
        assert (disturbed(iterations) == "steal").all() == expected
        assert (disturbed(iterations) != "").any() == expected
    single = rows()
    single.loc[during(single, 5, 6), "steal"] = 0.01  # one step of the counter may be next to nothing
    assert (disturbed(single) == "").all()


def test_a_quota_disturbs_unless_it_is_what_the_machine_is() -> None:
    visits = pd.concat([rows(count=5, visit=visit) for visit in range(5)], ignore_index=True)
    once = visits.assign(throttled=np.where(visits["visit"] == 2, TIME, 0.0))
    assert set(once.loc[disturbed(once) == "quota", "visit"]) == {2}
    assert (disturbed(visits.assign(throttled=TIME)) == "").all()


def test_throttled_clocks() -> None:
    hot = rows()
    hot.loc[during(hot, 3, 4), "thermal_throttles"] = 1
    hot.loc[during(hot, 7, 8), "frequency"] = 1.5e9
    hot.loc[during(hot, 9, 10), "frequency"] = 1.9e9
    assert marked(hot, disturbed(hot)) == [3, 7]
    idle = rows(cpus="0-15")
    idle.loc[during(idle, 7, 8), "frequency"] = 1.5e9
    assert (disturbed(idle) == "").all()
    cards = rows(gpu_throttle="SwPowerCap")
    cards.loc[during(cards, 3, 5), "gpu_throttle"] = "SwPowerCap, HwThermalSlowdown"
    cards.loc[during(cards, 6, 7), "gpu_throttle"] = None
    assert marked(cards, disturbed(cards)) == [3, 4]


def with_communication(visits: int = 5, count: int = 8, scatter: float = 0.3) -> pd.DataFrame:
    """Ranks that wait for the network, 0.2 s for most iterations, with a log-normal scatter."""
    parts = [rows(count=count, visit=visit, time=0.5) for visit in range(visits)]
    whole = pd.concat(parts, ignore_index=True)
    each = np.random.default_rng(1).lognormal(np.log(0.2), scatter, len(whole))
    return whole.assign(exposed_communication=each, iteration=whole["iteration"] + count * whole["visit"])


def test_a_network_that_stood_still_is_found_by_communication_that_is_long_on_all_ranks() -> None:
    iterations = with_communication()
    iterations.loc[during(iterations, 13, 14), "exposed_communication"] = 23
    reasons = disturbed(iterations)
    assert marked(iterations, reasons) == marked(iterations, reasons, rank=1) == [13]
    assert set(reasons) == {"", "standstill"}


def test_waiting_for_a_rank_that_computes_or_reads_is_no_standstill() -> None:
    iterations = with_communication()
    iterations.loc[during(iterations, 13, 14, rank=1), "exposed_communication"] = 23
    assert (disturbed(iterations) == "").all()


def test_communication_that_scatters_is_no_standstill() -> None:
    assert (disturbed(with_communication(200, 50, scatter=0.5)) == "").all()
    short = with_communication()
    short["exposed_communication"] /= 100
    short.loc[during(short, 13, 14), "exposed_communication"] = 0.5
    assert (disturbed(short) == "").all()


def test_a_network_that_stands_still_in_most_visits_is_what_it_is() -> None:
    for visits, expected in ((2, True), (3, False)):
        iterations = with_communication(5)
        at = (iterations["iteration"] % 8 == 3) & (iterations["visit"] < visits)
        iterations.loc[at, "exposed_communication"] = 23
        assert (disturbed(iterations) == "standstill").equals(at if expected else at & False)


def test_several_reasons_are_all_named() -> None:
    iterations = with_another_process(rows(), 0, COUNT).assign(steal=TIME)
    reasons = disturbed(iterations)
    assert set(reasons[iterations["rank"] == 0]) == {"another process, steal"}
    assert set(joint_reasons(iterations, reasons)) == {"another process, steal"}


def test_what_was_not_read_disturbs_nothing() -> None:
    sensors = ["runnable_wait", "process_time", "node_busy", "steal", "throttled", "frequency", "thermal_throttles"]
    assert (disturbed(rows().assign(**dict.fromkeys(sensors, np.nan))) == "").all()
    assert (disturbed(rows().drop(columns=[*sensors, "cpus", "threads", "node_busy_error"])) == "").all()
    assert (disturbed(rows().iloc[:0]) == "").all()
    assert (disturbed(rows().assign(**dict.fromkeys(sensors, None))) == "").all()


def test_one_rank_that_was_not_read_leaves_others_unjudged_but_other_visits_judged() -> None:
    iterations = pd.concat([with_another_process(rows(visit=visit), 0, COUNT) for visit in (0, 1)], ignore_index=True)
    iterations.loc[(iterations["visit"] == 0) & (iterations["rank"] == 1), "process_time"] = np.nan
    reasons = disturbed(iterations)
    assert set(iterations.loc[reasons != "", "visit"]) == {1}


@given(st.permutations(range(2 * COUNT)), st.integers(0, COUNT - 1), st.integers(1, COUNT))
def test_the_order_of_rows_does_not_matter(order: list[int], begin: int, length: int) -> None:
    iterations = with_another_process(rows(), begin, begin + length)
    reasons = disturbed(iterations)
    shuffled = iterations.iloc[order]
    assert disturbed(shuffled).sort_index().equals(reasons)
    assert joint_reasons(shuffled, disturbed(shuffled)).sort_index().equals(joint_reasons(iterations, reasons))


@pytest.mark.parametrize(("text", "cpus"), [("0-2,8", {0, 1, 2, 8}), ("3", {3}), ("", set())])
def test_lists_of_cpus(text: str, cpus: set[int]) -> None:
    assert cpu_numbers(text) == cpus


@pytest.mark.parametrize(("visits", "left_out"), [(3, True), (2, False), (1, False)])
def test_disturbed_iterations_are_left_out_where_two_visits_remain(visits: int, left_out: bool) -> None:
    iterations, of_visits = recorded(visits, 1)
    found = table(iterations, with_sentinel(of_visits))
    assert found["iteration"].tolist() == list(range(5))
    assert set(found["reason"]) == {"another process"}
    assert set(found["excluded"]) == {left_out}
    good = without(iterations, found)
    assert good["iteration"].nunique() == 5 * visits - (5 if left_out else 0)
    assert set(good["rank"]) == {0, 1}


@pytest.mark.parametrize(("visits", "hit", "cells"), [(3, 3, 1), (3, 2, 1), (3, 1, 0), (2, 1, 0), (2, 0, 0)])
def test_cells_are_named_whose_statistics_are_those_of_disturbed_iterations(visits: int, hit: int, cells: int) -> None:
    iterations, of_visits = recorded(visits, hit)
    found = table(iterations, with_sentinel(of_visits))
    assert len(mostly_disturbed(iterations, found)) == cells


def test_where_all_visits_are_disturbed_all_count() -> None:
    iterations, of_visits = recorded(3, 3)
    found = table(iterations, with_sentinel(of_visits))
    assert len(found) == 15
    assert not found["excluded"].any()
    assert without(iterations, found).equals(iterations)


def test_a_visit_whose_warm_up_alone_was_left_alone_does_not_count() -> None:
    iterations, of_visits = recorded(3, 1)
    second = (iterations["visit"] == 1) & ~iterations["warmup"]
    iterations.loc[second, "node_busy"] += TIME
    iterations.loc[second, "runnable_wait"] = TIME
    assert not table(iterations, with_sentinel(of_visits))["excluded"].any()


def test_what_was_not_watched_is_not_disturbed() -> None:
    iterations, of_visits = recorded(3, 1)
    assert table(iterations.assign(process_time=np.nan), with_sentinel(of_visits)).empty
    assert table(iterations.iloc[:0], with_sentinel(of_visits.iloc[:0])).empty


def test_of_cpus_that_are_shared_another_process_disturbs_nothing_but_a_slow_machine_is_found() -> None:
    iterations, of_visits = recorded(4, 2)
    shared, of_visits = iterations.assign(node_busy=np.nan), of_visits.assign(node_busy_error=np.nan)
    assert len(table(iterations, with_sentinel(of_visits)))
    assert table(shared, with_sentinel(of_visits)).empty
    slow = of_visits["visit"] == 3
    of_visits.loc[slow, ["product_before", "product_after"]] *= 1.2 * MIN_SLOWDOWN
    assert set(table(shared, with_sentinel(of_visits))["reason"]) == {"slow machine"}


def test_a_slow_machine_is_found_by_the_sentinel_at_both_ends_of_a_visit() -> None:
    iterations, of_visits = recorded(4, 0)
    slow, glitch = (of_visits["visit"] == 2) & (of_visits["rank"] == 1), of_visits["visit"] == 3
    of_visits.loc[slow, ["product_before", "product_after"]] *= 1.2 * MIN_SLOWDOWN
    of_visits.loc[glitch, "product_before"] *= MIN_SLOWDOWN  # at one end alone
    found = table(iterations, with_sentinel(of_visits))
    assert set(found["visit"]) == {2}
    assert set(found["reason"]) == {"slow machine"}
    assert found["excluded"].all()


def test_the_usual_sentinel_is_that_of_the_same_node_with_as_many_ranks() -> None:
    _, of_visits = recorded(6, 0)
    slower = of_visits["visit"] >= 3
    two = pd.concat([of_visits, of_visits.assign(kernel="slow node", product_before=0.4, product_after=0.4)])
    assert np.allclose(sentinels(two.reset_index(drop=True)), 1)
    fewer = of_visits.assign(ranks=np.where(slower, 1, 2))
    fewer.loc[slower, ["product_before", "product_after"]] /= 2
    assert np.allclose(sentinels(fewer), 1)
    assert sentinels(of_visits.assign(product_before=np.nan, product_after=np.nan)).isna().all(axis=None)

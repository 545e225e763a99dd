"""Disturbed iterations and their reasons: another process, the hypervisor, a quota, the clock.

A shared host may be slow although no counter shows it. Then the sentinel, constant work at both ends of every visit,
takes longer than usual. The sentinel does not depend on the visit's measurements, so that excluding slow visits does
not bias results. Visits without iterations (to collectives and reads) are judged only by the sentinel.

A network may stand still for seconds (a link is cut, a switch learns routes) while no counter of the host shows it.
Such a standstill is detected by the iteration's own communication time, and exclusion by a measured time can bias
results. Two conditions prevent this. Communication must take at least `MIN_STANDSTILL` times the cell's median.
With a log-normal scatter of 50 %, two of a million undisturbed iterations take so long. And it must take long on all
ranks: if one rank computes, reads or decodes for longer, only the other ranks wait. If most visits to a cell have a
standstill, this is the network's normal state, and nothing is marked.

A wait for a CPU is not yet a disturbance: on shared cores the ranks of a job, their communication threads and their
readers wait for each other, which is part of the measurement. Another process disturbs a rank by at most the smaller of
the rank's waiting time and the process's running time. Disturbances count if they take at least `MIN_SHARE` of an
iteration. Unreadable sensors (NaN) show no disturbance.

A kernel's counters are coarse (`node_busy_error`), and iterations may be short. Shares of time are therefore taken over
the iterations around each iteration, as few as keep the counters' error within `MAX_ERROR` of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

MIN_SHARE = 0.05
"""Smallest share of an iteration that counts as a disturbance; undisturbed iterations scatter by less."""
MAX_ERROR = 0.2
"""Largest error of a share of CPU time; shares found in shared counters must be above the error."""
STEAL_ERROR = 0.02
"""Error of stolen time, s: /proc/stat shows steps of 10 ms, of each CPU, at both ends."""
CLOCK_DROP = 0.1
"""Relative drop of the clock that counts as throttling: with the other cores' load, clocks vary by some percent."""
MIN_SLOWDOWN = 1.2
"""Ratio of the sentinel's time to its usual time (mean of both ends of a visit) from which the machine counts as slow.
A single end may vary by more, an undisturbed visit varies by less."""
MIN_STANDSTILL = 10.0
"""Ratio of exposed communication to its median in the cell from which the network stood still; congestion and waits for
other messages are below."""
STANDSTILL_SECONDS = 1.0
"""Excess over that median which a standstill needs, s: less may be a few retransmissions (TCP waits for 0.2 s before
the first), or the scatter of short messages."""
FEWEST_VISITS = 2
"""Number of visits with undisturbed iterations from which a cell's disturbed ones are excluded; else all are kept."""
SAMPLED_KINDS = ("collectives", "storage")
"""Kinds of cells whose visits have samples (collectives or reads) and no iterations."""
REASONS = ("another process", "steal", "quota", "throttled clock", "slow machine", "standstill")
ONE_WORKER_COLUMNS = ("network", "hardware", "worker_batch")
"""Columns that identify points on one worker."""
_GPU_SLOWDOWNS = "Thermal|HwSlowdown|PowerBrake"
_VISIT = ["cell", "visit"]
_SENTINEL_GROUPS = ["hardware", "kernel", "ranks", "threads"]
"""Columns in which visits with comparable sentinels agree: ranks that compute at once slow each other down."""

_Reals: TypeAlias = npt.NDArray[np.float64]


def disturbed(iterations: pd.DataFrame) -> pd.Series[str]:
    """Return why each row's iteration is disturbed: some of `REASONS`, joined by commas; empty if it is undisturbed.

    `iterations` has the columns of `measure.machine.sensors.between`, and cell, visit, rank, kernel, threads, cpus,
    node_busy_error, sentinel (`with_sentinel`), iteration, iteration_time and exposed_communication.
    """
    time = _numbers(iterations, "iteration_time")
    cpus, thread_counts = _cpus_and_threads(iterations)
    used_cpus = np.maximum(1, np.minimum(cpus, thread_counts))
    rows_by_reason = {
        "another process": _has_other_process(iterations, time, np.maximum(0, cpus - thread_counts)),
        # Stolen and throttled times are sums over all used CPUs, and are divided by the number of these CPUs.
        "steal": _time_share(iterations, _numbers(iterations, "steal") / used_cpus, STEAL_ERROR) > MIN_SHARE,
        "quota": _meets_quota(iterations, _numbers(iterations, "throttled") / used_cpus / time),
        "throttled clock": _is_throttled(iterations, cpus <= thread_counts),
        "slow machine": _numbers(iterations, "sentinel") > MIN_SLOWDOWN,
        "standstill": _stands_still(iterations),
    }
    reasons = np.full(len(iterations), "", dtype=object)
    for reason, applies in rows_by_reason.items():
        reasons[applies & (reasons != "")] += ", "
        reasons[applies] += reason
    return pd.Series(reasons, index=iterations.index, dtype=object)


def sentinels(visits: pd.DataFrame) -> pd.DataFrame:
    """Return the sentinel's times before and after each visit, divided by their median on comparable visits."""
    products = visits[["product_before", "product_after"]].astype(float)
    group: pd.Series[int] = visits.groupby(_SENTINEL_GROUPS, dropna=False).ngroup()
    times = products.set_axis(["before", "after"], axis=1)
    usual_times = pd.concat([times["before"], times["after"]]).groupby(pd.concat([group, group])).median()
    return times.div(group.map(usual_times), axis=0)


def joint_reasons(iterations: pd.DataFrame, reasons: pd.Series[str]) -> pd.Series[str]:
    """Return for each row the reasons found on any rank in the row's iteration, because ranks wait for each other."""
    keys = [*_VISIT, "iteration"]
    rows = iterations[keys].assign(reason=reasons)
    disturbed_rows = rows[rows["reason"] != ""]
    texts = disturbed_rows.groupby(keys)["reason"].agg(_joined_reasons)
    found = pd.MultiIndex.from_frame(iterations[keys])
    return pd.Series(texts.reindex(found).fillna("").to_numpy(dtype=object), index=iterations.index, dtype=object)


def with_sentinel(visits: pd.DataFrame) -> pd.DataFrame:
    """Return the visits with the column ``sentinel``, the mean of the two `sentinels` of each visit."""
    return visits.assign(sentinel=sentinels(visits).mean(axis=1))


def table(iterations: pd.DataFrame, visits: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the disturbances table for the `iterations` of complete cells.

    `visits` has the column ``sentinel``, and may include visits to other cells.
    """
    rank_keys = [*_VISIT, "rank"]
    observed_iterations = iterations[iterations["process_time"].notna()]
    visit_columns = ["kernel", "cpus", "threads", "node_busy_error", "sentinel"]
    rows = observed_iterations.merge(visits[[*rank_keys, *visit_columns]], on=rank_keys, how="left")
    rows = rows.assign(reason=joint_reasons(rows, disturbed(rows)) if len(rows) else "")
    steps = rows.drop_duplicates([*_VISIT, "iteration"])
    undisturbed_steps = steps[(steps["reason"] == "") & ~steps["warmup"].astype(bool)]
    has_enough_visits = undisturbed_steps.groupby("cell")["visit"].nunique() >= FEWEST_VISITS
    found = steps[steps["reason"] != ""][["cell", "hardware", "visit", "iteration", "reason"]]
    return found.assign(excluded=found["cell"].isin(has_enough_visits[has_enough_visits].index))


def slow_visits(visits: pd.DataFrame) -> pd.DataFrame:
    """Return the disturbances table's rows for visits on a slow machine, to cells whose kind is in `SAMPLED_KINDS`.

    `visits` has the column ``sentinel``. A slow visit is excluded if another visit to its cell was not slow.
    """
    sampled_visits = visits[visits["kind"].isin(SAMPLED_KINDS)]
    marked_visits = sampled_visits.assign(slow=sampled_visits["sentinel"] > MIN_SLOWDOWN)
    found = marked_visits.groupby(["cell", "hardware", "visit"])["slow"].agg("any").reset_index()
    are_all_slow = found.groupby("cell")["slow"].transform("all").astype(bool)
    rows = found.assign(iteration=np.nan, reason="slow machine", excluded=~are_all_slow)[found["slow"].astype(bool)]
    return rows.drop(columns="slow")


def without_slow_visits(samples: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `samples` without those of excluded visits; `found` is the result of `slow_visits`."""
    excluded_visits = found[found["excluded"].astype(bool)]
    return samples[~pd.MultiIndex.from_frame(samples[_VISIT]).isin(pd.MultiIndex.from_frame(excluded_visits[_VISIT]))]


def without(frame: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `frame` (iterations or layers) without the iterations that the disturbances exclude."""
    excluded_iterations = found[found["excluded"].astype(bool) & found["iteration"].notna()]
    if excluded_iterations.empty:
        return frame
    index = pd.MultiIndex.from_frame(excluded_iterations[["cell", "iteration"]].astype({"iteration": int}))
    return frame[~pd.MultiIndex.from_frame(frame[["cell", "iteration"]]).isin(index)]


def counts(iterations: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """Count iterations and disturbed iterations on one worker, with a row for each point of `ONE_WORKER_COLUMNS`."""
    one_worker_rows = iterations[(iterations["ranks"] == 1) & ~iterations["warmup"].astype(bool)]
    keys = ["cell", "iteration"]
    is_disturbed = pd.MultiIndex.from_frame(one_worker_rows[keys]).isin(pd.MultiIndex.from_frame(found[keys]))
    groups = one_worker_rows.assign(disturbed=is_disturbed).groupby(list(ONE_WORKER_COLUMNS))["disturbed"]
    return groups.agg(iterations="size", disturbed="sum").reset_index()


def mostly_disturbed(iterations: pd.DataFrame, found: pd.DataFrame) -> frozenset[str]:
    """Return the cells in which more than half of the kept iterations are disturbed."""
    steps = without(iterations[~iterations["warmup"].astype(bool)], found)[["cell", "iteration"]].drop_duplicates()
    is_disturbed = pd.MultiIndex.from_frame(steps).isin(pd.MultiIndex.from_frame(found[["cell", "iteration"]]))
    disturbed_share = pd.Series(is_disturbed, index=steps["cell"]).groupby(level=0).mean()
    return frozenset(disturbed_share[disturbed_share > 0.5].index)


def other_process_seconds(iterations: pd.DataFrame) -> pd.Series[float]:
    """Return the CPU time of other processes on the CPUs of each row's rank during the row's iteration, s.

    This is the CPU time of all threads minus that of the job's ranks; measurement errors can make it negative.
    """
    keys = [*_VISIT, "iteration", "kernel"]
    rows = iterations[keys].assign(
        cpus=_cpu_lists(iterations), busy=_numbers(iterations, "node_busy"), own=_numbers(iterations, "process_time")
    )
    seconds = pd.Series(np.nan, index=iterations.index)
    for cpus in rows["cpus"].unique():
        is_member = rows["cpus"] == cpus
        neighbours = rows[rows["cpus"].map({other: _share_cpus(cpus, other) for other in rows["cpus"].unique()})]
        groups = neighbours.assign(known=neighbours["own"].notna()).groupby(keys)
        other_seconds = rows[is_member].groupby(keys)["busy"].mean() - groups["own"].sum().where(groups["known"].all())
        seconds[is_member] = other_seconds.reindex(pd.MultiIndex.from_frame(rows.loc[is_member, keys])).to_numpy()
    return seconds


def _has_other_process(iterations: pd.DataFrame, time: _Reals, free_cpus: _Reals) -> npt.NDArray[np.bool_]:
    """Return whether other processes took CPU time from each rank; `free_cpus` counts CPUs without job threads."""
    thread_counts = _numbers(iterations, "threads", 1)
    error = _numbers(iterations, "node_busy_error", STEAL_ERROR)
    share = _time_share(iterations, np.asarray(other_process_seconds(iterations), dtype=np.float64), error)
    waited_share = np.minimum(share, _numbers(iterations, "runnable_wait") / time)
    # Only one of a rank's threads is observed. While it waits for a disturbed thread, it seems undisturbed itself.
    displaced_share = np.where((thread_counts > 1) | np.isnan(waited_share), share - free_cpus, 0)
    return np.fmax(waited_share, displaced_share) > MIN_SHARE


def _meets_quota(iterations: pd.DataFrame, share: _Reals) -> npt.NDArray[np.bool_]:
    """Return whether a quota throttled each iteration; False if most visits are throttled, which is the usual state."""
    rank_keys = ["cell", "rank"]
    rows = iterations[[*_VISIT, "rank"]].assign(share=share)
    usual_share = rows.groupby([*_VISIT, "rank"])["share"].mean().groupby(rank_keys).median()
    is_usual = usual_share.reindex(pd.MultiIndex.from_frame(iterations[rank_keys])).to_numpy() > MIN_SHARE
    return (share > MIN_SHARE) & ~is_usual


def _stands_still(iterations: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Return whether communication stood still on all ranks; False if most visits to the cell have a standstill."""
    keys = [*_VISIT, "iteration"]
    rows = iterations[keys].assign(exposed=_numbers(iterations, "exposed_communication"))
    least_exposed = rows.groupby(keys)["exposed"].min()
    median_exposed = least_exposed.groupby("cell").transform("median")
    stops = (least_exposed >= MIN_STANDSTILL * median_exposed) & (least_exposed - median_exposed >= STANDSTILL_SECONDS)
    is_normal = stops.groupby(_VISIT).any().groupby("cell").transform("mean") > 0.5
    found = stops & ~is_normal.reindex(pd.MultiIndex.from_frame(stops.index.to_frame()[_VISIT])).to_numpy(dtype=bool)
    return found.reindex(pd.MultiIndex.from_frame(iterations[keys])).to_numpy(dtype=np.bool_)


def _is_throttled(iterations: pd.DataFrame, uses_all_cpus: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return whether the clock was throttled, according to the kernel, the GPU, or the frequency of busy CPUs."""
    clock_rates = pd.Series(_numbers(iterations, "frequency"), index=iterations.index)
    usual_rates = clock_rates.groupby([iterations["cell"], iterations["rank"]]).transform("median")
    is_slow = (clock_rates < (1 - CLOCK_DROP) * usual_rates).to_numpy() & uses_all_cpus
    is_slow |= _numbers(iterations, "thermal_throttles") > 0
    if "gpu_throttle" in iterations:
        throttle_reasons = iterations["gpu_throttle"].astype(object).where(iterations["gpu_throttle"].notna(), "")
        is_slow |= throttle_reasons.astype(str).str.contains(_GPU_SLOWDOWNS).to_numpy(dtype=np.bool_)
    return is_slow


def _time_share(iterations: pd.DataFrame, seconds: _Reals, error: _Reals | float) -> _Reals:
    """Return what share of time `seconds` take in the iterations around each iteration; 0 if not above the `error`."""
    time = _numbers(iterations, "iteration_time")
    error = np.broadcast_to(error, time.shape)
    keys = [*_VISIT, "rank"]
    group = iterations.groupby(keys, sort=False, dropna=False).ngroup().to_numpy()
    row_order = np.lexsort((iterations["iteration"], group))
    first = np.searchsorted(group[row_order], group[row_order], "left")
    last = np.searchsorted(group[row_order], group[row_order], "right")
    # Missing values count as 0 in the cumulative sums, where a NaN would make all later sums NaN.
    missing_counts = np.concatenate([[0], np.cumsum(np.isnan(seconds[row_order]))])
    time_sums = [np.concatenate([[0.0], np.cumsum(values[row_order])]) for values in (time, np.nan_to_num(seconds))]
    rows, width = np.arange(len(row_order)), 0
    share = np.zeros(len(row_order))
    while len(rows):
        begin, end = np.maximum(rows - width, first[rows]), np.minimum(rows + width + 1, last[rows])
        span, amount = (total[end] - total[begin] for total in time_sums)
        max_error = error[row_order][rows]
        is_precise = (span * MAX_ERROR >= max_error) | ((begin == first[rows]) & (end == last[rows]))
        is_known = is_precise & (missing_counts[end] == missing_counts[begin])
        share[rows[is_precise]] = np.where(is_known, np.where(amount > max_error, amount / span, 0), np.nan)[is_precise]
        rows, width = rows[~is_precise], width + 1
    result = np.empty(len(row_order))
    result[row_order] = share
    return result


def _cpus_and_threads(iterations: pd.DataFrame) -> tuple[_Reals, _Reals]:
    """Return the number of CPUs on which each row's rank may run, and the number of the job's threads on these CPUs."""
    keys = [*_VISIT, "iteration", "kernel"]
    rows = iterations[keys].assign(cpus=_cpu_lists(iterations), threads=_numbers(iterations, "threads", 1))
    thread_counts = pd.Series(0.0, index=iterations.index)
    for cpus in rows["cpus"].unique():
        is_member = rows["cpus"] == cpus
        neighbours = rows[rows["cpus"].map({other: _share_cpus(cpus, other) for other in rows["cpus"].unique()})]
        threads = neighbours.groupby(keys)["threads"].sum()
        thread_counts[is_member] = threads.reindex(pd.MultiIndex.from_frame(rows.loc[is_member, keys])).to_numpy()
    cpu_counts = {text: float(len(cpu_numbers(text))) or np.inf for text in rows["cpus"].unique()}
    return np.asarray(rows["cpus"].map(cpu_counts), dtype=np.float64), np.asarray(thread_counts, dtype=np.float64)


def _cpu_lists(iterations: pd.DataFrame) -> pd.Series[str]:
    """Return the list of CPUs of each row's rank; an empty list (unknown) stands for all CPUs of the kernel."""
    if "cpus" not in iterations:
        return pd.Series("", index=iterations.index, dtype=object)
    return iterations["cpus"].astype(object).where(iterations["cpus"].notna(), "")


def _share_cpus(first_cpus: str, second_cpus: str) -> bool:
    return first_cpus == second_cpus or bool(cpu_numbers(first_cpus) & cpu_numbers(second_cpus))


def cpu_numbers(cpus: str) -> frozenset[int]:
    """Return the CPU numbers in a list such as ``0-3,8``."""
    range_ends = [part.split("-") for part in cpus.split(",") if part]
    return frozenset(number for part in range_ends for number in range(int(part[0]), int(part[-1]) + 1))


def _numbers(iterations: pd.DataFrame, column: str, missing_value: float = np.nan) -> _Reals:
    """Return a column as floating-point numbers; missing values become `missing_value`."""
    if column not in iterations:
        return np.full(len(iterations), missing_value)
    values = pd.to_numeric(iterations[column]).to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(np.isnan(values), missing_value, values)


def _joined_reasons(reasons: Sequence[str]) -> str:
    present_reasons = {one for text in reasons for one in text.split(", ")}
    return ", ".join(reason for reason in REASONS if reason in present_reasons)

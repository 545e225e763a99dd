"""Disturbed iterations and their reasons: another process, the hypervisor, a quota, the clock.

A shared host may be slow although no counter shows it. Then the sentinel, constant work at both ends of every visit,
takes longer than usual. The sentinel does not depend on the visit's measurements, so that excluding slow visits does
not bias results. Visits without iterations (to collectives and reads) are judged only by the sentinel.

A network may stand still for seconds (a link is cut, a switch learns routes) while no counter of the host shows it.
Such a standstill is detected by the iteration's own communication time, and exclusion by a measured time can bias
results. Two conditions prevent this. The time must be far beyond the scatter of communication: `STANDSTILL` times the
cell's median, which two iterations of a million exceed if the scatter is log-normal with 50 %. And it must be long on
all ranks: a rank that computes, reads or decodes for longer has short communication itself, while the others wait. If
most visits to a cell have a standstill, it is the network's normal state, and nothing is marked.

A wait for a CPU is not yet a disturbance: on shared cores the ranks of a job, their communication threads and their
readers wait for each other, which is part of the measurement. Another process disturbs a rank by at most the smaller of
the rank's waiting time and the process's running time. Disturbances count if they take at least `MATTERS` of an
iteration. Unreadable sensors (NaN) show no disturbance.

A kernel's counters are coarse (`node_busy_error`), and iterations may be short. Shares of time are therefore taken over
several iterations: as few around each iteration as make the counters' error at most `CERTAIN` of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

MATTERS = 0.05
"""Smallest share of an iteration that counts as a disturbance; undisturbed iterations scatter by less."""
CERTAIN = 0.2
"""Largest error of a share of CPU time; shares found in shared counters must be above the error."""
STEAL_ERROR = 0.02
"""Error of stolen time, s: /proc/stat shows steps of 10 ms, of each CPU, at both ends."""
SLOWER_CLOCK = 0.1
"""Relative drop of the clock that counts as throttling: with the other cores' load, clocks vary by some percent."""
SLOW = 1.2
"""Ratio of the sentinel's time to its usual time (mean of both ends of a visit) from which the machine counts as slow.
A single end may vary by more, an undisturbed visit varies by less."""
STANDSTILL = 10.0
"""Ratio of exposed communication to its median in the cell from which the network stood still; congestion and waits for
other messages are below."""
STANDSTILL_SECONDS = 1.0
"""Excess over that median which a standstill needs, s: less may be a few retransmissions (TCP waits for 0.2 s before
the first), or the scatter of short messages."""
FEWEST_VISITS = 2
"""Number of visits with undisturbed iterations from which a cell's disturbed ones are excluded; else all are kept."""
SAMPLED = ("collectives", "storage")
"""Kinds of cells whose visits have samples (collectives or reads) and no iterations."""
REASONS = ("another process", "steal", "quota", "throttled clock", "slow machine", "standstill")
OF_ONE_WORKER = ("network", "hardware", "worker_batch")
"""Columns that identify points on one worker."""
_GPU_SLOWS_DOWN = "Thermal|HwSlowdown|PowerBrake"
_VISIT = ["cell", "visit"]
_EQUAL = ["hardware", "kernel", "ranks", "threads"]
"""Columns in which visits with comparable sentinels agree: ranks that compute at once slow each other down."""

_Reals: TypeAlias = npt.NDArray[np.float64]


def disturbed(iterations: pd.DataFrame) -> pd.Series[str]:
    """Return why each row's iteration is disturbed: some of `REASONS`, joined by commas; empty if it is undisturbed.

    Columns are those of `measure.machine.sensors.between`, those of a visit (cell, visit, rank, kernel, threads, cpus,
    node_busy_error), sentinel (`with_sentinel`), iteration, iteration_time and exposed_communication.
    """
    time = _numbers(iterations, "iteration_time")
    cpus, wanted = _cpus_and_threads(iterations)
    used = np.maximum(1, np.minimum(cpus, wanted))
    found = {
        "another process": _another_process(iterations, time, np.maximum(0, cpus - wanted)),
        # Hypervisors and quotas take time from all used CPUs at once, so the sum is divided by their number.
        "steal": _shared(iterations, _numbers(iterations, "steal") / used, STEAL_ERROR) > MATTERS,
        "quota": _quota(iterations, _numbers(iterations, "throttled") / used / time),
        "throttled clock": _throttled_clock(iterations, cpus <= wanted),
        "slow machine": _numbers(iterations, "sentinel") > SLOW,
        "standstill": _standstill(iterations),
    }
    reasons = np.full(len(iterations), "", dtype=object)
    for reason, applies in found.items():
        reasons[applies & (reasons != "")] += ", "
        reasons[applies] += reason
    return pd.Series(reasons, index=iterations.index, dtype=object)


def sentinels(visits: pd.DataFrame) -> pd.DataFrame:
    """Return the sentinel's times before and after each visit, divided by their median on comparable visits."""
    products = visits[["product_before", "product_after"]].astype(float)
    group: pd.Series[int] = visits.groupby(_EQUAL, dropna=False).ngroup()
    ends = products.set_axis(["before", "after"], axis=1)
    usual = pd.concat([ends["before"], ends["after"]]).groupby(pd.concat([group, group])).median()
    return ends.div(group.map(usual), axis=0)


def on_all_ranks(iterations: pd.DataFrame, reasons: pd.Series[str]) -> pd.Series[str]:
    """Return for each row the reasons of all ranks in the same iteration, because ranks wait for each other."""
    which = [*_VISIT, "iteration"]
    rows = iterations[which].assign(reason=reasons)
    some = rows[rows["reason"] != ""]
    joined = some.groupby(which)["reason"].agg(_joined_reasons)
    found = pd.MultiIndex.from_frame(iterations[which])
    return pd.Series(joined.reindex(found).fillna("").to_numpy(dtype=object), index=iterations.index, dtype=object)


def with_sentinel(visits: pd.DataFrame) -> pd.DataFrame:
    """Return the visits with the column ``sentinel``, the mean of the two `sentinels` of each visit."""
    return visits.assign(sentinel=sentinels(visits).mean(axis=1))


def table(iterations: pd.DataFrame, visits: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the disturbances table for the `iterations` of complete cells.

    `visits` has the column ``sentinel``, and may include visits to other cells.
    """
    key = [*_VISIT, "rank"]
    watched = iterations[iterations["process_time"].notna()]
    of_visit = ["kernel", "cpus", "threads", "node_busy_error", "sentinel"]
    rows = watched.merge(visits[[*key, *of_visit]], on=key, how="left")
    rows = rows.assign(reason=on_all_ranks(rows, disturbed(rows)) if len(rows) else "")
    steps = rows.drop_duplicates([*_VISIT, "iteration"])
    good = steps[(steps["reason"] == "") & ~steps["warmup"].astype(bool)]
    enough = good.groupby("cell")["visit"].nunique() >= FEWEST_VISITS
    found = steps[steps["reason"] != ""][["cell", "hardware", "visit", "iteration", "reason"]]
    return found.assign(excluded=found["cell"].isin(enough[enough].index))


def slow_visits(visits: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the disturbances table for visits on a slow machine to cells of `SAMPLED` kinds.

    `visits` has the column ``sentinel``. A slow visit is excluded if another visit to its cell was not slow.
    """
    sampled = visits[visits["kind"].isin(SAMPLED)]
    slow = sampled.assign(slow=sampled["sentinel"] > SLOW)
    found = slow.groupby(["cell", "hardware", "visit"])["slow"].agg("any").reset_index()
    every = found.groupby("cell")["slow"].transform("all").astype(bool)
    rows = found.assign(iteration=np.nan, reason="slow machine", excluded=~every)[found["slow"].astype(bool)]
    return rows.drop(columns="slow")


def without_visits(samples: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `samples` without those of excluded visits; `found` is the result of `slow_visits`."""
    gone = found[found["excluded"].astype(bool)]
    return samples[~pd.MultiIndex.from_frame(samples[_VISIT]).isin(pd.MultiIndex.from_frame(gone[_VISIT]))]


def without(frame: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `frame` (iterations or layers) without the iterations that the disturbances exclude."""
    gone = found[found["excluded"].astype(bool) & found["iteration"].notna()]
    if gone.empty:
        return frame
    index = pd.MultiIndex.from_frame(gone[["cell", "iteration"]].astype({"iteration": int}))
    return frame[~pd.MultiIndex.from_frame(frame[["cell", "iteration"]]).isin(index)]


def counts(iterations: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """Count iterations on one worker and disturbed ones; columns are `OF_ONE_WORKER`, iterations and disturbed."""
    single = iterations[(iterations["ranks"] == 1) & ~iterations["warmup"].astype(bool)]
    which = ["cell", "iteration"]
    is_disturbed = pd.MultiIndex.from_frame(single[which]).isin(pd.MultiIndex.from_frame(found[which]))
    of_points = single.assign(disturbed=is_disturbed).groupby(list(OF_ONE_WORKER))["disturbed"]
    return of_points.agg(iterations="size", disturbed="sum").reset_index()


def kept(iterations: pd.DataFrame, found: pd.DataFrame) -> frozenset[str]:
    """Return the cells of whose kept iterations more than half are disturbed."""
    steps = without(iterations[~iterations["warmup"].astype(bool)], found)[["cell", "iteration"]].drop_duplicates()
    is_disturbed = pd.MultiIndex.from_frame(steps).isin(pd.MultiIndex.from_frame(found[["cell", "iteration"]]))
    share = pd.Series(is_disturbed, index=steps["cell"]).groupby(level=0).mean()
    return frozenset(share[share > 0.5].index)


def other_process_seconds(iterations: pd.DataFrame) -> pd.Series[float]:
    """Return the CPU time of other processes on the CPUs of each row's rank during the row's iteration, s.

    This is the CPU time of all threads minus that of the job's ranks; measurement errors can make it negative.
    """
    which = [*_VISIT, "iteration", "kernel"]
    rows = iterations[which].assign(
        cpus=_cpus(iterations), busy=_numbers(iterations, "node_busy"), own=_numbers(iterations, "process_time")
    )
    result = pd.Series(np.nan, index=iterations.index)
    for cpus in rows["cpus"].unique():
        mine = rows["cpus"] == cpus
        there = rows[rows["cpus"].map({other: _share_cpus(cpus, other) for other in rows["cpus"].unique()})]
        times = there.assign(known=there["own"].notna()).groupby(which)
        difference = rows[mine].groupby(which)["busy"].mean() - times["own"].sum().where(times["known"].all())
        result[mine] = difference.reindex(pd.MultiIndex.from_frame(rows.loc[mine, which])).to_numpy()
    return result


def _another_process(iterations: pd.DataFrame, time: _Reals, free_cpus: _Reals) -> npt.NDArray[np.bool_]:
    """Return whether other processes took CPU time from each row's rank; `free_cpus` are those without job threads."""
    threads = _numbers(iterations, "threads", 1)
    error = _numbers(iterations, "node_busy_error", STEAL_ERROR)
    share = _shared(iterations, np.asarray(other_process_seconds(iterations), dtype=np.float64), error)
    waited = np.minimum(share, _numbers(iterations, "runnable_wait") / time)
    # Only one of a rank's threads is observed; it seems undisturbed while it waits for a disturbed thread.
    displaced = np.where((threads > 1) | np.isnan(waited), share - free_cpus, 0)
    return np.fmax(waited, displaced) > MATTERS


def _quota(iterations: pd.DataFrame, share: _Reals) -> npt.NDArray[np.bool_]:
    """Return whether a quota throttled each iteration; False where most visits are throttled, as usual."""
    rank = ["cell", "rank"]
    rows = iterations[[*_VISIT, "rank"]].assign(share=share)
    usual = rows.groupby([*_VISIT, "rank"])["share"].mean().groupby(rank).median()
    usually_throttled = usual.reindex(pd.MultiIndex.from_frame(iterations[rank])).to_numpy() > MATTERS
    return (share > MATTERS) & ~usually_throttled


def _standstill(iterations: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Return whether communication stood still on all ranks; False if most visits to the cell have a standstill."""
    which = [*_VISIT, "iteration"]
    rows = iterations[which].assign(exposed=_numbers(iterations, "exposed_communication"))
    least = rows.groupby(which)["exposed"].min()
    usual = least.groupby("cell").transform("median")
    still = (least >= STANDSTILL * usual) & (least - usual >= STANDSTILL_SECONDS)
    normal = still.groupby(_VISIT).any().groupby("cell").transform("mean") > 0.5
    found = still & ~normal.reindex(pd.MultiIndex.from_frame(still.index.to_frame()[_VISIT])).to_numpy(dtype=np.bool_)
    return found.reindex(pd.MultiIndex.from_frame(iterations[which])).to_numpy(dtype=np.bool_)


def _throttled_clock(iterations: pd.DataFrame, all_used: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return whether the clock was throttled: by the kernel's count, the GPU's reason, or busy CPUs' frequency."""
    clock = pd.Series(_numbers(iterations, "frequency"), index=iterations.index)
    usual = clock.groupby([iterations["cell"], iterations["rank"]]).transform("median")
    slow = (clock < (1 - SLOWER_CLOCK) * usual).to_numpy() & all_used
    slow |= _numbers(iterations, "thermal_throttles") > 0
    if "gpu_throttle" in iterations:
        reasons = iterations["gpu_throttle"].astype(object).where(iterations["gpu_throttle"].notna(), "")
        slow |= reasons.astype(str).str.contains(_GPU_SLOWS_DOWN).to_numpy(dtype=np.bool_)
    return slow


def _shared(iterations: pd.DataFrame, taken: _Reals, error: _Reals | float) -> _Reals:
    """Return the seconds `taken` as a share of the time around each iteration; 0 if they are within the `error`."""
    time = _numbers(iterations, "iteration_time")
    error = np.broadcast_to(error, time.shape)
    keys = [*_VISIT, "rank"]
    group = iterations.groupby(keys, sort=False, dropna=False).ngroup().to_numpy()
    order = np.lexsort((iterations["iteration"], group))
    first = np.searchsorted(group[order], group[order], "left")
    last = np.searchsorted(group[order], group[order], "right")
    # Missing values count as 0 in the cumulative sums, where a NaN would make all later sums NaN.
    lacking = np.concatenate([[0], np.cumsum(np.isnan(taken[order]))])
    sums = [np.concatenate([[0.0], np.cumsum(values[order])]) for values in (time, np.nan_to_num(taken))]
    open_, width = np.arange(len(order)), 0
    share = np.zeros(len(order))
    while len(open_):
        begin, end = np.maximum(open_ - width, first[open_]), np.minimum(open_ + width + 1, last[open_])
        row, amount = (total[end] - total[begin] for total in sums)
        allowed = error[order][open_]
        enough = (row * CERTAIN >= allowed) | ((begin == first[open_]) & (end == last[open_]))
        known = enough & (lacking[end] == lacking[begin])
        share[open_[enough]] = np.where(known & (amount > allowed), amount / row, np.where(known, 0, np.nan))[enough]
        open_, width = open_[~enough], width + 1
    result = np.empty(len(order))
    result[order] = share
    return result


def _cpus_and_threads(iterations: pd.DataFrame) -> tuple[_Reals, _Reals]:
    """Return the number of CPUs on which each row's rank may run, and the number of the job's threads on these CPUs."""
    which = [*_VISIT, "iteration", "kernel"]
    rows = iterations[which].assign(cpus=_cpus(iterations), threads=_numbers(iterations, "threads", 1))
    wanted = pd.Series(0.0, index=iterations.index)
    for cpus in rows["cpus"].unique():
        mine = rows["cpus"] == cpus
        there = rows[rows["cpus"].map({other: _share_cpus(cpus, other) for other in rows["cpus"].unique()})]
        threads = there.groupby(which)["threads"].sum()
        wanted[mine] = threads.reindex(pd.MultiIndex.from_frame(rows.loc[mine, which])).to_numpy()
    cpus_of = {text: float(len(members(text))) or np.inf for text in rows["cpus"].unique()}
    return np.asarray(rows["cpus"].map(cpus_of), dtype=np.float64), np.asarray(wanted, dtype=np.float64)


def _cpus(iterations: pd.DataFrame) -> pd.Series[str]:
    """Return the list of CPUs of each row's rank; an empty list (unknown) stands for all CPUs of the kernel."""
    if "cpus" not in iterations:
        return pd.Series("", index=iterations.index, dtype=object)
    return iterations["cpus"].astype(object).where(iterations["cpus"].notna(), "")


def _share_cpus(one: str, other: str) -> bool:
    return one == other or bool(members(one) & members(other))


def members(cpus: str) -> frozenset[int]:
    """Return the CPU numbers in a list such as ``0-3,8``."""
    ends = [part.split("-") for part in cpus.split(",") if part]
    return frozenset(number for part in ends for number in range(int(part[0]), int(part[-1]) + 1))


def _numbers(iterations: pd.DataFrame, column: str, default: float = np.nan) -> _Reals:
    """Return a column as floating-point numbers; missing values become `default`."""
    if column not in iterations:
        return np.full(len(iterations), default)
    values = pd.to_numeric(iterations[column]).to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(np.isnan(values), default, values)


def _joined_reasons(reasons: Sequence[str]) -> str:
    there = {one for text in reasons for one in text.split(", ")}
    return ", ".join(reason for reason in REASONS if reason in there)

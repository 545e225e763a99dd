"""Readings of the sensors around iterations, made up: what disturbed them is known."""

import numpy as np
import pandas as pd

TIME = 0.05
COUNT = 40


def rows(ranks: int = 2, count: int = COUNT, time: float = TIME, **columns: object) -> pd.DataFrame:
    """Ranks that keep a CPU each busy, wait a tenth of the time for each other's threads, and meet nobody else."""
    found = pd.DataFrame(
        {
            "cell": "a", "visit": 0, "kernel": "k", "threads": 1, "cpus": f"0-{ranks - 1}", "node_busy_error": 0.005,
            "rank": np.repeat(np.arange(ranks), count), "iteration": np.tile(np.arange(count), ranks),
            "iteration_time": time, "runnable_wait": 0.1 * time, "process_time": time, "node_busy": ranks * time,
            "steal": 0.0, "throttled": 0.0, "frequency": 2e9, "thermal_throttles": 0, "involuntary_switches": 9,
        }
    )  # fmt: skip
    return found.assign(**columns)


def marked(iterations: pd.DataFrame, reasons: pd.Series, rank: int = 0) -> list[int]:
    return iterations.loc[(iterations["rank"] == rank) & (reasons != ""), "iteration"].tolist()


def during(iterations: pd.DataFrame, begin: int, end: int, rank: int | None = None) -> pd.Series:
    return iterations["iteration"].between(begin, end - 1) & (rank is None or iterations["rank"] == rank)


def with_another_process(iterations: pd.DataFrame, begin: int, end: int, share: float = 0.5) -> pd.DataFrame:
    """It takes `share` of a core from rank 0, which waits as long."""
    there = during(iterations, begin, end)
    iterations.loc[there, "node_busy"] += share * iterations["iteration_time"]
    iterations.loc[there & (iterations["rank"] == 0), "runnable_wait"] = share * iterations["iteration_time"]
    return iterations


OF_VISITS = ["kernel", "cpus", "threads", "node_busy_error"]


def recorded(visits: int, disturbed_visits: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tables of iterations and visits: another process is there all the time of the first `disturbed_visits`."""
    parts = [rows(count=5, visit=visit, runnable_wait=0.0) for visit in range(visits)]
    parts = [with_another_process(part, 0, 5) if i < disturbed_visits else part for i, part in enumerate(parts)]
    whole = pd.concat([part.assign(iteration=part["iteration"] + 5 * i) for i, part in enumerate(parts)])
    whole = whole.assign(hardware="cpu", warmup=whole["iteration"] % 5 == 0).reset_index(drop=True)
    of_visits = whole.drop_duplicates(["cell", "visit", "rank"])
    return whole.drop(columns=OF_VISITS), of_visits.assign(ranks=2, product_before=0.2, product_after=0.2)

"""All-reduces, alone and while every rank computes: real jobs under mpirun."""

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from launching import run_job
from little import QUICK
from resident_ranks import Ranks
from sample_cells import COLLECTIVES

from stallpoint.measure import constants
from stallpoint.measure.jobs import co_running
from stallpoint.measure.jobs.operations import Operation
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.world import World
from stallpoint.records.tables import CONTENTION
from stallpoint.strategies.options import OPERATIONS

pytestmark = pytest.mark.ranks

SIZES = [1024, 2**22]


def measured(
    ranks: Ranks,
    folder: Path,
    *,
    backend: str = "mpi",
    workers: int = 2,
    samples: int = 4,
    operations: list[str] | None = None,
) -> dict[str, pd.DataFrame]:
    cell = replace(
        COLLECTIVES, nodes=workers, visits=1, backend=backend, message_bytes=SIZES, samples=samples,
        operations=operations,
    )  # fmt: skip
    code, output = run_job(ranks, cell, folder)
    assert code == 0, output
    return {name: pd.read_parquet(folder / f"{name}.parquet") for name in ("collectives", "contention")}


@pytest.fixture(scope="module", params=["mpi", "torch"])
def tables(
    request: pytest.FixtureRequest, ranks: Ranks, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, pd.DataFrame]:
    return measured(ranks, tmp_path_factory.mktemp(request.param), backend=request.param)


@pytest.mark.parametrize("backend", ["mpi", "torch"])
def test_every_operation_does_what_it_says_and_is_timed(ranks: Ranks, backend: str, tmp_path: Path) -> None:
    # Which checks results.
    found = measured(ranks, tmp_path, backend=backend, workers=3, samples=1, operations=list(OPERATIONS))
    for rows in found.values():
        assert set(rows["operation"]) == set(OPERATIONS)
        assert set(rows.groupby(["operation", "message_bytes", "rank"]).size()) == {2}
        assert (rows["seconds"] > 0).all()


def test_every_rank_records_every_row_of_calls(tables: dict[str, pd.DataFrame]) -> None:
    calls = tables["collectives"].groupby(["message_bytes", "rank"])
    assert (calls.size() == 5).all()
    assert len(calls) == 4
    assert (calls["warmup"].sum() == 1).all()
    assert (tables["collectives"]["seconds"] > 0).all()


MOST = {"collectives": constants.MAX_BURST_CALLS, "contention": constants.MAX_CO_RUNNING_CALLS}


@pytest.mark.parametrize(("name", "most"), MOST.items(), ids=MOST)
def test_ranks_agree_on_how_much_they_send(tables: dict[str, pd.DataFrame], name: str, most: int) -> None:
    rows = tables[name]
    by_rank = [of.drop(columns="rank").reset_index(drop=True) for _, of in rows.groupby("rank")]
    agreed = ["message_bytes", "sample", "warmup", "calls"]
    pd.testing.assert_frame_equal(by_rank[0][agreed], by_rank[1][agreed])
    assert rows["calls"].between(1, most).all()


def test_as_many_messages_follow_one_another_as_fill_the_time_of_a_row(tables: dict[str, pd.DataFrame]) -> None:
    rows = tables["collectives"]
    assert (rows[rows["warmup"]]["calls"] == 1).all()
    on_rank_0 = rows[rows["rank"] == 0].sort_values(["message_bytes", "sample"])
    wanted = on_rank_0["calls"] * QUICK["BURST_SECONDS"] / on_rank_0["seconds"]
    following = on_rank_0["calls"].shift(-1)[on_rank_0["message_bytes"] == on_rank_0["message_bytes"].shift(-1)]
    assert (following == wanted.clip(1, constants.MAX_BURST_CALLS).round()[following.index]).all()


def test_what_takes_its_time_anyway_is_measured_less_often(tables: dict[str, pd.DataFrame]) -> None:
    rows = tables["contention"]
    assert (rows.groupby(["message_bytes", "rank"]).size() >= 1 + constants.CO_RUNNING_SAMPLES).all()
    first = rows[rows["sample"] == 1].groupby("message_bytes")["calls"].max()
    assert (
        rows.groupby("message_bytes")["sample"].max() == np.where(first == 1, constants.CO_RUNNING_SAMPLES, 4)
    ).all()


def test_computing_goes_on_as_long_as_messages_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that end when five pieces were computed beside them."""
    pieces = threading.Semaphore(0)
    monkeypatch.setattr(constants, "ISOLATED_SECONDS", 0.0)
    monkeypatch.setattr(co_running, "backward_of_convolution", lambda _: pieces.release)
    alone = replace(COLLECTIVES, nodes=1, visits=1, message_bytes=[4], samples=1)
    kept = Recorder(alone, 0)

    def sends() -> int:
        while pieces.acquire(blocking=False):
            pass  # those before
        assert all(pieces.acquire(timeout=60) for _ in range(5))
        return 0

    message = Operation("all-reduce", 4, sends, torch.zeros(1), 1)
    co_running.measure(alone, World.start(1), lambda *_: message, kept)  # type: ignore[arg-type]
    rows = kept.arrow(CONTENTION).to_pandas()
    assert (rows["operations"] >= 5).all()
    assert (rows["computing"] > 0).all()


def test_computing_takes_one_piece_at_least_and_ends_with_that_in_which_the_last_message_returned() -> None:
    returned = iter([False, False, True])
    pieces: list[None] = []
    count, seconds = co_running._compute_until(lambda: pieces.append(None), lambda: next(returned))
    assert count == len(pieces) == 3
    assert seconds > 0
    assert co_running._compute_until(lambda: None, lambda: True)[0] == 1


def test_each_rank_computes_alone_once_in_a_visit_for_as_long_as_a_pass_takes(tables: dict[str, pd.DataFrame]) -> None:
    rows = tables["contention"]
    assert (rows[["operations", "isolated_operations"]] >= 1).all(axis=None)
    assert (rows[["seconds", "computing"]] > 0).all(axis=None)
    # Its clock starts when the time to be filled has begun.
    assert (rows["isolated_computing"] >= 0.9 * QUICK["ISOLATED_SECONDS"]).all()
    assert (rows.groupby("rank")["isolated_computing"].nunique() == 1).all()
    assert rows["isolated_computing"].nunique() == rows["rank"].nunique()


def test_a_rank_alone_has_nobody_to_talk_to(ranks: Ranks, tmp_path: Path) -> None:
    assert measured(ranks, tmp_path, workers=1, samples=1)["contention"].empty

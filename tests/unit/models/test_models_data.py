from typing import Any

import numpy as np
import pandas as pd
import pytest
from synthetic import Truth, study

from stallpoint.base.measured import Measured, measured, step_rows
from stallpoint.base.statistics import estimate
from stallpoint.errors import InputError
from stallpoint.models.terms import data
from stallpoint.models.terms.batch_law import BatchTimes, choose_kernel
from stallpoint.models.terms.data import Traffic, TrainingData, data_share

TRUTH = Truth()


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    return study(TRUTH, nodes=(1, 2, 4))


def steps(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    return step_rows(tables["iterations"], tables["layers"])


@pytest.fixture(scope="module")
def points(tables: dict[str, pd.DataFrame]) -> list[Measured]:
    return measured(steps(tables), seed=0)


def training_data(tables: dict[str, pd.DataFrame]) -> TrainingData:
    return TrainingData(tables["runs"], steps(tables), tables["storage_reads"], seed=0)


def point(points: list[Measured], storage: str, prefetch: int) -> Measured:
    return next(
        p for p in points if (p.point.storage, p.point.prefetch, p.point.scaling) == (storage, prefetch, "strong")
    )


@pytest.mark.parametrize("storage", ["local", "shared"])
@pytest.mark.parametrize("ranks", [1, 4, 16])
def test_time_for_input_grows_as_the_storage_slows(
    tables: dict[str, pd.DataFrame], points: list[Measured], storage: str, ranks: int
) -> None:
    in_line = training_data(tables).seconds(point(points, storage, 0), (ranks, 1), 8)
    value, low, high = estimate(in_line)
    assert value == pytest.approx(8 * (TRUTH.read_seconds(storage, ranks) + TRUTH.decode), rel=0.04)
    assert low <= value <= high


def test_workers_of_a_node_share_its_disk(tables: dict[str, pd.DataFrame], points: list[Measured]) -> None:
    reads = tables["storage_reads"]
    shared = reads[reads["storage"] == "shared"]
    # As many readers on one node as there were nodes, and a storage that knows no difference between nodes.
    inside = {**tables, "storage_reads": shared.assign(nodes=1)}
    at = training_data(inside)
    for place in ((1, 4), (2, 4)):
        seconds = at.seconds(point(points, "shared", 0), place, 8)
        assert seconds[0] == pytest.approx(8 * (TRUTH.read_seconds("shared", 4) + TRUTH.decode), rel=0.04)
    both = pd.concat([shared.assign(nodes=1), shared[shared["nodes"] > 1]])
    seconds = training_data({**tables, "storage_reads": both}).seconds(point(points, "shared", 0), (2, 4), 8)
    slower = TRUTH.read_seconds("shared", 4) * TRUTH.read_seconds("shared", 2) / TRUTH.read
    assert seconds[0] == pytest.approx(8 * (slower + TRUTH.decode), rel=0.04)


def test_reader_threads_share_the_work(tables: dict[str, pd.DataFrame], points: list[Measured]) -> None:
    ahead = training_data(tables).seconds(point(points, "local", 2), (1, 1), 8)
    assert ahead[0] == pytest.approx(8 * (TRUTH.read + TRUTH.decode) / 2, rel=0.03)


def test_without_records_of_the_storage_training_on_several_ranks_says_how_it_slows_down(
    tables: dict[str, pd.DataFrame], points: list[Measured]
) -> None:
    none = {**tables, "storage_reads": tables["storage_reads"].iloc[:0]}
    at, of_data = point(points, "shared", 0), training_data(none)
    for nodes in (4, 8):
        each = TRUTH.read_seconds("shared", nodes) + TRUTH.decode
        assert of_data.seconds(at, (nodes, 1), 8)[0] == pytest.approx(8 * each, rel=0.04)
    without = of_data.seconds(at, (4, 1), 8, without=[one for p in points if p.point.ranks == 4 for one in p.cells])
    assert without[0] == pytest.approx(8 * (TRUTH.read_seconds("shared", 4) + TRUTH.decode), rel=0.04)
    assert (without != of_data.seconds(at, (4, 1), 8)).any(), "a prediction does not take part in its own"
    none["iterations"] = tables["iterations"].query("ranks == 1")
    seconds = training_data(none).seconds(at, (4, 1), 8)
    assert seconds[0] == pytest.approx(8 * (TRUTH.read + TRUTH.decode), rel=0.03), "it is taken to keep pace"


def test_readers_that_slow_each_other_down_gain_less_and_decoded_samples_are_only_read(
    tables: dict[str, pd.DataFrame], points: list[Measured]
) -> None:
    none = {**tables, "storage_reads": tables["storage_reads"].iloc[:0]}
    at, of_data = point(points, "shared", 2), training_data(none)
    (now,), (more,) = (of_data.changed(readers, staged=False).seconds(at, (4, 1), 8)[:1] for readers in (2, 8))
    assert more == pytest.approx(8 * (TRUTH.read_seconds("shared", 16) + TRUTH.decode) / 8, rel=0.05)
    assert now / more < 4
    staged = of_data.changed(None, staged=True, decoded=True).seconds(at, (4, 1), 8)
    assert staged[0] == pytest.approx(8 * TRUTH.read / 2, rel=0.03)


def test_the_cached_pass_speaks_when_training_read_from_the_cache(
    tables: dict[str, pd.DataFrame], points: list[Measured]
) -> None:
    cached = {**tables, "iterations": tables["iterations"].assign(read=lambda rows: rows["read"] / 10)}
    seconds = training_data(cached).seconds(point(points, "shared", 0), (4, 1), 8)
    assert seconds[0] == pytest.approx(8 * (TRUTH.read / 10 + TRUTH.decode), rel=0.03)  # no contention there


def test_unknown_without_a_cell_to_learn_from(tables: dict[str, pd.DataFrame], points: list[Measured]) -> None:
    cells = tables["iterations"].query("storage == 'shared'")["cell"].unique()
    seconds = training_data(tables).seconds(point(points, "shared", 0), (4, 1), 8, without=list(cells))
    assert np.isnan(seconds).all()


def test_share_of_waiting_for_data(points: list[Measured]) -> None:
    table = pd.DataFrame(data_share(points)).query("scaling == 'strong' and nodes == 1")
    wait = 64 * (TRUTH.read + TRUTH.decode)
    in_line = table.query("prefetch == 0")
    assert in_line["data_wait"].to_numpy() == pytest.approx(wait, rel=0.03)
    assert in_line["share"].to_numpy() == pytest.approx(in_line["data_wait"] / 0.2642, rel=0.03)
    assert (table.query("prefetch == 2")["share"] == 0).all()


def beside(
    tables: dict[str, pd.DataFrame], points: list[Measured], *, storage: str = "shared", prefetch: int = 2
) -> tuple[float, float, float]:
    """t_io alone and beside gradients of 50 MB on a link of 400 MB/s, b = 64; the factor on the gradients' time."""
    of_data = TrainingData(
        tables["runs"],
        step_rows(tables["iterations"], tables["layers"]),
        tables["storage_reads"],
        seed=0,
        shared_links=["shared"],
    )
    at = point(points, storage, prefetch)
    alone = of_data.seconds(at, (4, 1), 64)
    gradients = Traffic(np.full(len(alone), 400e6), 50e6)
    together, slower = of_data.sharing_link(at, alone, 1, 64, gradients)
    return float(alone[0]), float(together[0]), float(np.broadcast_to(slower, alone.shape)[0])


def test_a_storage_on_the_network_gets_what_the_gradients_leave(
    tables: dict[str, pd.DataFrame], points: list[Measured]
) -> None:
    # 64 samples of 100 kB, read in 64 · (0.25 + 0.4) ms / 2 alone: a rate of 308 MB/s, more than half of the link.
    alone, together, slower = beside(tables, points)
    assert alone == pytest.approx(64 * (TRUTH.read_seconds("shared", 4) + TRUTH.decode) / 2, rel=0.03)
    rate = 6.4e6 / alone
    share = min(rate, 200e6)
    assert together == pytest.approx(6.4e6 / share, rel=0.01)  # the data is there first
    sent = together + (50e6 - (400e6 - share) * together) / 400e6
    assert slower == pytest.approx(sent / (50e6 / 400e6), rel=0.01)
    assert together > 1.4 * alone


@pytest.mark.parametrize("place", [{"storage": "local"}, {"prefetch": 0}])
def test_a_disk_of_its_own_or_reading_in_line_never_meets_the_gradients(
    tables: dict[str, pd.DataFrame], points: list[Measured], place: dict[str, Any]
) -> None:
    alone, together, slower = beside(tables, points, **place)
    assert (together, slower) == (alone, 1.0)


def test_impossible_reads_are_refused_by_name(tables: dict[str, pd.DataFrame]) -> None:
    reads = tables["storage_reads"].copy()
    reads.loc[reads.index[3], "seconds"] = -1.0
    with pytest.raises(InputError, match=r"storage_reads: seconds is -1 .* of cell storage/"):
        TrainingData(tables["runs"], steps(tables), reads, seed=0)


def test_reads_that_took_no_time_slow_nothing(tables: dict[str, pd.DataFrame], points: list[Measured]) -> None:
    instant = {**tables, "storage_reads": tables["storage_reads"].assign(seconds=0.0)}
    seconds = training_data(instant).seconds(point(points, "shared", 0), (4, 1), 8)
    assert seconds[0] == pytest.approx(8 * (TRUTH.read + TRUTH.decode), rel=0.03)


def test_a_storage_that_keeps_pace_until_it_is_saturated() -> None:
    ranks = [1, 2, 4, 8, 16]
    seconds = np.maximum(1e-3, 0.2e-3 * np.array(ranks))[None, :, None]
    curve = BatchTimes(ranks, seconds, choose_kernel([(ranks, seconds)], data.SLOWING_LAWS))
    assert curve.kernel.sharpness > 1
    assert float(curve(64)[0, 0]) == pytest.approx(0.2e-3 * 64, rel=0.02)

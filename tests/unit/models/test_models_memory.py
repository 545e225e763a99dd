"""Peak memory by mini-batch, and the largest that fits, where both are planted."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nightly import fewer_examples
from synthetic import Truth, study

from stallpoint.base.measured import Point
from stallpoint.base.priors import MEMORY_PEAK
from stallpoint.models.answers import fits
from stallpoint.models.fitting import fit
from stallpoint.models.terms import peaks
from stallpoint.models.terms.training_cells import Layers
from stallpoint.records.tables import LARGEST_BATCH, MEMORY
from stallpoint.strategies.division import Cuts
from stallpoint.strategies.presets import PRESETS, Preset
from stallpoint.study.kinds import cell_from_json
from stallpoint.study.kinds.train_kind import TrainCell

TRUTH = Truth()
AVAILABLE = 2**33
FITS = int((AVAILABLE - TRUTH.fixed_memory) / TRUTH.memory)
Tables = dict[str, pd.DataFrame]


@pytest.fixture(scope="module")
def tables() -> Tables:
    return study(TRUTH, visits=2, repeats=1, storages=("local",))


def found(tables: Tables) -> pd.DataFrame:
    """The largest_batch table, as records of this study give it."""
    known = peaks.fit(tables["peak_memory"], tables["runs"], seed=0)
    rows = fits.largest_batch(known, tables["runs"], tables["environments"])
    assert all(set(row) == {column.name for column in LARGEST_BATCH.columns} for row in rows)
    return pd.DataFrame(rows).set_index(["sync", "prefetch", "memory"])


def only(tables: Tables, keep: "pd.Series[bool]") -> Tables:
    """The study with these rows of peak_memory alone."""
    return {**tables, "peak_memory": tables["peak_memory"][keep]}


def of_compute(tables: Tables) -> pd.Series:
    return found(tables).loc[("none", 0, "host")]


def with_failure(tables: Tables, b: int, reason: str, **changes: object) -> Tables:
    """The same where the largest compute cell, of b instead, ended for this reason."""
    runs = tables["runs"]
    row = next(row for row in runs.to_dict("records") if "scaling~compute" in row["cell"])
    cell = cell_from_json(row["settings"])
    assert isinstance(cell, TrainCell)
    cell = replace(cell, batch=b, worker_batch=b, **changes)
    row = {**row, "cell": cell.path, "settings": cell.to_json(), "status": "failed", "reason": reason}
    return {**tables, "runs": pd.concat([runs, pd.DataFrame([row])])}


def test_what_was_planted_is_found_again(tables: Tables) -> None:
    row = of_compute(tables)
    assert row["available"] == AVAILABLE
    for name, planted in {"fixed": TRUTH.fixed_memory, "slope": TRUTH.memory}.items():
        assert row[name] == pytest.approx(planted, rel=1e-6)
        assert row[f"{name}_low"] < planted < row[f"{name}_high"]
    assert row["largest_batch"] == FITS
    assert row["largest_batch_low"] < FITS < row["largest_batch_high"]
    assert (row["basis"], row["note"], row["largest_measured"]) == ("predicted", "", 64)


def test_parts_are_told_apart(tables: Tables) -> None:
    known = peaks.fit(tables["peak_memory"], tables["runs"], seed=0)
    rows = pd.DataFrame(peaks.table(known))
    assert set(rows) == {column.name for column in MEMORY.columns}
    assert set(rows["memory"]) == {"host"}
    parts = rows[["process", "weights", "gradients", "optimiser", "rest"]]
    assert parts.sum(axis=1).tolist() == pytest.approx(rows["peak"].tolist())
    assert rows["rest"].tolist() == pytest.approx((TRUTH.memory * rows["worker_batch"]).tolist())
    weak = rows[(rows["sync"] == "wfbp") & (rows["prefetch"] == 2)]
    assert weak["worker_batch"].tolist() == [16, 32, 64], "cells of strong and weak scaling tell of one training"
    assert (rows["predicted_low"] < rows["peak"]).all()
    assert (rows["peak"] < rows["predicted_high"]).all()


def test_the_rank_that_needs_most_decides(tables: Tables) -> None:
    rows = tables["peak_memory"].copy()
    rows.loc[rows["rank"] == 1, "host_peak"] += 1e9
    more = found({**tables, "peak_memory": rows})["fixed"] - found(tables)["fixed"]
    assert more["none", 0, "host"] == 0
    assert more["naive", 0, "host"] > 0


@pytest.mark.parametrize(
    "reason", ["out of memory: DefaultCPUAllocator", "rank 1 was killed (signal 9): out of memory, the kernel says so"]
)
def test_what_ran_out_of_memory_bounds_it_from_above(tables: Tables, reason: str) -> None:
    row = of_compute(with_failure(tables, 100, reason))
    assert (row["basis"], row["smallest_failed"]) == ("measured", 100)
    assert 64 <= row["largest_batch_low"] <= row["largest_batch"] <= row["largest_batch_high"] == 99


def test_one_that_was_trained_and_one_that_failed_enclose_it_without_a_line(tables: Tables) -> None:
    one = only(tables, tables["peak_memory"]["worker_batch"] == 64)
    row = of_compute(with_failure(one, 100, "out of memory: DefaultCPUAllocator"))
    assert row["basis"] == "measured"
    assert row[["largest_batch", "largest_batch_low", "largest_batch_high"]].tolist() == [64, 64, 99]


def test_a_failure_for_another_reason_or_of_another_training_is_no_bound(tables: Tables) -> None:
    for changed in (
        with_failure(tables, 100, "no GPU that PyTorch can use"),
        with_failure(tables, 100, "out of memory: DefaultCPUAllocator", prefetch=7),
        with_failure(tables, 16, "out of memory: DefaultCPUAllocator"),
    ):
        assert of_compute(changed)["basis"] == "predicted"


def test_a_gpu_runs_out_of_its_own_memory(tables: Tables) -> None:
    rows = found(with_failure(tables, 100, "out of memory: CUDA out of memory", device="cuda", hardware="gpu"))
    row = rows[rows["hardware"] == "gpu"].reset_index().iloc[0]
    assert (row["memory"], row["smallest_failed"], row["basis"]) == ("device", 100, "unknown")
    assert row["note"] == "every b that was tried ran out of memory"


def test_a_gpus_tensors_are_in_its_memory_and_not_in_the_hosts(tables: Tables) -> None:
    rows = tables["peak_memory"].copy()
    rows["device_peak"], rows["host_peak"] = rows["host_peak"] - rows["process"], 5e8
    environments = tables["environments"].assign(gpu_available_memory=2.0**32)
    on_gpu = {**tables, "peak_memory": rows, "environments": environments}
    known = peaks.fit(rows, tables["runs"], seed=0)
    parts = pd.DataFrame(peaks.table(known)).groupby("memory").first()
    assert parts.loc["host", ["process", "weights", "gradients", "optimiser", "rest"]].tolist() == [3e8, 0, 0, 0, 2e8]
    assert parts.loc["device", "process"] == 0
    assert parts.loc["device", "weights"] == TRUTH.gradient_bytes
    row = found(on_gpu).loc[("none", 0, "device")]
    assert row["largest_batch"] == int((2**32 - TRUTH.fixed_memory + 3e8) / TRUTH.memory)
    host = found(on_gpu).loc[("none", 0, "host")]
    assert host["basis"] == "unknown", "the host's memory does not grow with b"


def test_one_mini_batch_tells_no_other(tables: Tables) -> None:
    row = of_compute(only(tables, tables["peak_memory"]["worker_batch"] == 64))
    assert (row["basis"], row["note"]) == ("unknown", "one b was measured; two tell how memory grows with b")
    assert row[["largest_batch", "fixed"]].isna().all()


def test_interventions_and_unknown_peaks_do_not_count(tables: Tables) -> None:
    rows = tables["peak_memory"]
    assert peaks.fit(rows.assign(host_peak=float("nan")), tables["runs"], seed=0) == []
    runs = tables["runs"].assign(kind="sgemm")
    assert peaks.fit(rows, runs, seed=0) == []


@fewer_examples(4)
@given(scatter=st.floats(0.0, 0.05), failed=st.integers(65, 10**4), seed=st.integers(0, 10**6))
def test_the_largest_that_fits_lies_between_what_was_trained_and_what_failed(
    tables: Tables, scatter: float, failed: int, seed: int
) -> None:
    rows = tables["peak_memory"]
    compute = rows[rows["sync"] == "none"]
    noise = np.random.default_rng(seed).standard_normal(len(compute))
    changed = {**tables, "peak_memory": compute.assign(host_peak=compute["host_peak"] * np.exp(scatter * noise))}
    row = of_compute(with_failure(changed, failed, "out of memory"))
    assert 64 <= row["largest_batch_low"] <= row["largest_batch"] <= row["largest_batch_high"] < failed


def test_places_that_nobody_ran_fit_by_what_the_preset_divides(tables: Tables) -> None:
    names, ranks = ("block1.fc", "block2.fc"), 4
    layers = Layers(names, np.array(["fully-connected"] * 2), np.array([3e8, 1e8], dtype=np.int64))
    weights = float(layers.gradient_bytes.sum())
    (alone,) = (
        replace(one, parts=[{"weights": weights, "gradients": weights, "optimiser": weights}] * len(one.batches))
        for one in peaks.fit(tables["peak_memory"], tables["runs"], seed=0)
        if one.training[3] == "none"
    )
    point = Point("alexnet", "cpu", "local", "weak", "mine", 0, 16, 1, ranks, ranks, 64, 16)
    at = {b: alone.measured[0, alone.batches.index(b)] for b in (4, 16)}
    ddp, fsdp = PRESETS["ddp"].preset, PRESETS["fsdp"].preset
    expected = {
        PRESETS["wfbp"].preset: at[16],
        ddp: at[16] + weights,
        replace(ddp, bucket_view=True): at[16],
        replace(ddp, accumulate=4): at[4] + weights,
        PRESETS["zero-1"].preset: at[16] + weights - weights * 3 / 4 + weights * 5 / 4,
        fsdp: at[16] - 3 * weights * 3 / 4 + 4 * 3e8,
        PRESETS["pipeline"].preset: at[16] - 3 * weights * 3 / 4,
        replace(fsdp, accumulate=4): at[4] - 3 * weights * 3 / 4 + 4 * 3e8 + weights,
    }
    for preset, bytes_ in expected.items():
        assert fit_of(point, {"mine": preset}, [alone], layers, tables).peak[0] == pytest.approx(bytes_), preset
    trick = {"mine": PRESETS["one-weird-trick"].preset}
    cuts = Cuts((1, 30 * 10), (4 * 30, None), (None, 10))
    gathered = 64 * 4 * (30 + 10)
    split = fit_of(point, trick, [alone], layers, tables, cuts=cuts).peak[0]
    assert split == pytest.approx(at[16] - 3 * 1e8 * 3 / 4 + gathered), "of the second block alone"
    assert fit_of(point, trick, [alone], layers, tables).fits == "unknown"


def test_what_was_trained_and_what_ran_out_of_memory_say_what_fits_whatever_is_predicted(tables: Tables) -> None:
    known = [one for one in peaks.fit(tables["peak_memory"], tables["runs"], seed=0) if one.training[3] == "wfbp"]
    point = Point("alexnet", "cpu", "local", "weak", "wfbp", 2, 64, 1, 4, 4, 256, 64)
    told = {"largest_measured": 64.0, "smallest_failed": 100.0}
    for available, untried in {2**40: "yes", 2**20: "no", np.nan: "unknown"}.items():
        here = {**tables, "environments": tables["environments"].assign(available_memory=float(available))}
        for b, answer in {64: "yes", 80: untried, 100: "no"}.items():
            at = replace(point, worker_batch=b)
            assert fit_of(at, {"wfbp": PRESETS["wfbp"].preset}, known, None, here, told).fits == answer


def test_without_a_worker_alone_a_change_is_judged_by_what_it_changes(tables: Tables) -> None:
    layers = Layers(("fc",), np.array(["fully-connected"]), np.array([4e8], dtype=np.int64))
    known = [one for one in peaks.fit(tables["peak_memory"], tables["runs"], seed=0) if one.training[3] == "wfbp"]
    now = Point("alexnet", "cpu", "local", "weak", "wfbp", 2, 64, 1, 4, 4, 256, 64)
    wfbp = PRESETS["wfbp"].preset
    bucketed = {"wfbp": wfbp, "mine": replace(PRESETS["ddp"].preset, accumulate=4)}
    fit = fit_of(replace(now, sync="mine"), bucketed, known, layers, tables, now=now)
    assert fit.peak[0] == pytest.approx(TRUTH.fixed_memory + 16 * TRUTH.memory + 4e8, rel=1e-3)
    other = {"wfbp": wfbp, "mine": replace(wfbp, activation_checkpointing=True)}
    assert fit_of(replace(now, sync="mine"), other, known, layers, tables, now=now).fits == "unknown"


def fit_of(
    point: Point, presets: dict[str, Preset], known: list[peaks.Peaks], layers: Layers | None, tables: Tables,
    told: dict[str, float] | None = None, now: Point | None = None, cuts: Cuts | None = None,
) -> fits.MemoryUse:  # fmt: skip
    """What is said of the point where these peaks are known, and `told` of the largest that fits."""
    largest = [{**one.labels, **told} for one in known] if told else []
    networks = {point.network: layers} if layers else {}
    known_cuts = {point.network: cuts} if cuts else {}
    memory = fits.MemoryModel(
        known, largest, networks, presets, tables["peak_memory"], tables["environments"], known_cuts
    )
    return memory(point, now or point)


def test_fits_stands_beside_what_was_measured(tables: Tables) -> None:
    rows = fit(tables, nodes=[8])["fits"].query("sync == 'wfbp' and scaling == 'strong'").set_index("ranks")
    assert rows.loc[[1, 2, 4], "predicted"].to_numpy() == pytest.approx(rows.loc[[1, 2, 4], "measured"], rel=0.1)
    assert np.isnan(rows.loc[8, "measured"]).all()
    assert rows.loc[8, "predicted"].to_numpy() == pytest.approx(TRUTH.fixed_memory + 8 * TRUTH.memory, rel=0.1)
    assert set(rows["fits"]) == {"yes"}


def test_runs_scatter_more_than_their_visits(tables: Tables) -> None:
    """The visits of a cell are of one run: that they agree says nothing of the next one."""
    cells = tables["peak_memory"].groupby(["cell", "visit"])["host_peak"].max().groupby("cell")
    assert (cells.std() == 0).all()
    known = peaks.fit(tables["peak_memory"], tables["runs"], seed=0)
    for one in (one for one in known if len(one.cells) == len(one.batches)):
        assert np.log(one.measured[1:, 0]).std() == pytest.approx(MEMORY_PEAK.deviation, rel=0.25)

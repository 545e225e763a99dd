from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from made_up_products import BANDWIDTH, CALIBRATED, PEAK, TRUE, changing, curves, rows, seconds
from sample_cells import SGEMM
from synthetic import study

from stallpoint.errors import InputError
from stallpoint.models.terms import matrix_products
from stallpoint.models.terms.batch_law import BatchLaw
from stallpoint.records.tables import MACHINE


@pytest.fixture(scope="module")
def measured() -> pd.DataFrame:
    found = rows("peak", MACHINE, 2048, 2048, 2048, 2 * 2048**3 / PEAK)
    found += rows("bandwidth", MACHINE, 1, 8192, 8192, 4 * (8192**2 + 2 * 8192) / BANDWIDTH)
    for m in (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 32, 33):
        found += rows("rows", MACHINE, m, 2048, 2048, seconds(m, 2048, 2048))
    for b in CALIBRATED:
        found += rows("reference", "fully-connected", b, 4096, 9216, seconds(b, 4096, 9216))
    return pd.DataFrame(found)


def test_peak_and_bandwidth_and_the_roofline_they_make(measured: pd.DataFrame) -> None:
    machine = matrix_products.machine(measured)
    assert machine is not None
    assert (machine.peak, machine.bandwidth) == pytest.approx((PEAK, BANDWIDTH))
    assert machine.roofline_seconds(1, 4096, 9216) == pytest.approx(4 * 4096 * 9216 / BANDWIDTH, rel=1e-3)
    assert machine.roofline_seconds(512, 4096, 9216) == pytest.approx(2 * 512 * 4096 * 9216 / PEAK)
    assert matrix_products.machine(measured[measured["layer"] != "peak"]) is None


def test_numbers_of_bf16_have_two_bytes(measured: pd.DataFrame) -> None:
    settings = replace(SGEMM, precision="bf16").to_json()
    runs = pd.DataFrame({"kind": ["sgemm"], "cell": ["sgemm/c"], "settings": [settings]})
    machine = matrix_products.machine(matrix_products.with_value_bytes(measured, runs))
    assert machine is not None
    assert (machine.peak, machine.bandwidth) == pytest.approx((PEAK, BANDWIDTH / 2))
    assert machine.roofline_seconds(1, 4096, 9216) == pytest.approx(2 * 4096 * 9216 / (BANDWIDTH / 2), rel=1e-3)


def law(sgemm: pd.DataFrame, layer: str) -> BatchLaw:
    (shape,) = (shape for shape in matrix_products.shapes(sgemm, seed=0) if shape.name == layer)
    return shape.curve(matrix_products.libraries(sgemm, seed=0)["cpu"]).law


def test_the_kernel_and_left_out_mini_batches(measured: pd.DataFrame) -> None:
    assert matrix_products.libraries(measured, seed=0)["cpu"].kernel == TRUE
    curve = curves(measured)["reference"]
    assert curve.kernel == TRUE
    for b in (3, 5, 8, 24, 33, 128, 512):
        assert float(curve(b)[0, 0]) == pytest.approx(seconds(b, 4096, 9216), rel=0.01)


def test_a_library_that_changes_between_kernels_is_followed_where_its_rows_were_measured() -> None:
    found = []
    for m in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 384, 512):
        found += rows("rows", MACHINE, m, 4096, 6144, changing(m, 4096, 6144))
    for b in (*CALIBRATED, 512):
        found += rows("reference", "fully-connected", b, 4096, 9216, changing(b, 4096, 9216))
        found += rows("fc8", "fully-connected", b, 1024, 1000, changing(b, 1024, 1000))
    sgemm = pd.DataFrame(found)
    at = curves(sgemm)
    for b in (3, 8, 24, 128, 160, 192, 384):
        assert float(at["reference"](b)[0, 0]) == pytest.approx(changing(b, 4096, 9216), rel=0.02)
        assert float(at["fc8"](b)[0, 0]) == pytest.approx(changing(b, 1024, 1000), rel=0.02)
    library = matrix_products.libraries(sgemm, seed=0)["cpu"]
    laws = {shape.name: shape.curve(library).law for shape in matrix_products.shapes(sgemm, seed=0)}
    assert (laws["reference"].kernel == library.bent_kernel, laws["fc8"].kernel == library.bent_kernel) == (True, False)


def test_the_law_of_each_shape_in_terms_of_the_machine(measured: pd.DataFrame) -> None:
    found = law(measured, "reference")
    weights_read = 4 * 4096 * 9216 / BANDWIDTH
    assert found.floor[0, 0] / weights_read == pytest.approx(2.0, rel=0.01)
    assert 2 * 4096 * 9216 / found.each[0, 0] / PEAK == pytest.approx(0.9, rel=0.01)
    assert (found.kernel.block, found.kernel.min_rows) == (4, 4)


def test_speedup_of_matrix_products() -> None:
    tables = study(nodes=(1, 2), storages=("local",), syncs=("naive",), prefetches=(0,), weak=False)
    table = pd.DataFrame(matrix_products.sgemm_speedup(tables["sgemm"], seed=0)).set_index(["layer", "worker_batch"])
    row = table.loc[("reference", 4)]
    assert row["seconds"] == pytest.approx(1.8e-3, rel=0.03)
    assert row["speedup"] == pytest.approx((1e-3 + 64 * 2e-4) / 1.8e-3, rel=0.04)
    assert row["gflops"] == pytest.approx(2 * 4 * 4096 * 9216 / 1.8e-3 / 1e9, rel=0.03)
    assert np.isnan(row["roofline"])  # this study measured neither peak nor bandwidth


def test_what_tells_about_the_machine_is_no_layer(measured: pd.DataFrame) -> None:
    table = pd.DataFrame(matrix_products.sgemm_speedup(measured, seed=0))
    assert set(table["layer"]) == {"reference"}
    at_8 = table[table["worker_batch"] == 64].iloc[0]
    assert at_8["roofline"] == pytest.approx(2 * 64 * 4096 * 9216 / PEAK)
    assert at_8["roofline"] < at_8["seconds"]


@pytest.mark.parametrize("wrong", [0.0, -1.0, np.nan])
def test_impossible_times_are_refused_by_name(measured: pd.DataFrame, wrong: float) -> None:
    broken = measured.copy()
    broken.loc[broken.index[-1], "seconds"] = wrong
    with pytest.raises(InputError, match=r"sgemm: seconds is .* of cell sgemm/c"):
        matrix_products.shapes(broken, seed=0)

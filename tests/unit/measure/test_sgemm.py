from collections import Counter
from dataclasses import replace
from pathlib import Path

import little
import pytest
import torch
from nightly import by_day
from sample_cells import SGEMM as SGEMM_CELL
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from stallpoint.measure import constants
from stallpoint.measure.jobs import sgemm
from stallpoint.measure.machine.caches import Caches, cpu_caches
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.world import World
from stallpoint.networks import NETWORKS, find_network
from stallpoint.networks.inputs import Images, Tokens
from stallpoint.networks.products import Product, products
from stallpoint.records.tables import MACHINE, SGEMM


def products_of(name: str, batch: int) -> list[Product]:
    network = find_network(name)
    return products(network.outline(), network.takes, batch)


def test_shapes_of_alexnet() -> None:
    b = 16
    conv, fc = "convolution", "fully-connected"
    assert products_of("alexnet", b) == [
        Product("conv1", conv, 96, 3 * 11 * 11, 55 * 55, b),
        Product("conv2", conv, 128, 48 * 5 * 5, 27 * 27, 2 * b),
        Product("conv3", conv, 384, 256 * 3 * 3, 13 * 13, b),
        Product("conv4", conv, 192, 192 * 3 * 3, 13 * 13, 2 * b),
        Product("conv5", conv, 128, 192 * 3 * 3, 13 * 13, 2 * b),
        Product("fc6", fc, b, 9216, 4096, 1),
        Product("fc7", fc, b, 4096, 4096, 1),
        Product("fc8", fc, b, 4096, 1000, 1),
    ]


def test_products_of_gpt2_are_those_of_all_tokens_and_heads() -> None:
    b, fc = 3, "fully-connected"
    first, *_, last = (product for product in products_of("gpt2-small", b) if product.layer_type == fc)
    assert first == Product("block1.qkv", fc, b * 1024, 768, 3 * 768, 1)
    assert last == Product("output", fc, b * 1024, 768, 50257, 1)
    attention = [product for product in products_of("gpt2-small", b) if product.layer == "block1.attention"]
    assert attention == [
        Product("block1.attention", "attention", 1024, 64, 1024, 12 * b, "scores"),
        Product("block1.attention", "attention", 1024, 1024, 64, 12 * b, "mixture"),
    ]


def test_products_of_pytorchs_own_attention_are_those_it_counts() -> None:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(50, 32)
            self.encoder = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)

        def forward(self, tokens: torch.Tensor, _labels: torch.Tensor) -> torch.Tensor:
            return self.encoder(self.embedding(tokens)).sum()

    network, takes = Encoder(), Tokens(16, 50)
    with FlopCounterMode(display=False) as counter:
        network(*takes.example(2, torch.device("cpu")))
    found = products(network, takes, 2)
    assert sum(product.floating_point_operations for product in found) == counter.get_total_flops()
    assert len({product.name for product in found}) == len(found)


def test_a_layer_that_is_called_twice_multiplies_twice() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shared = nn.Linear(4, 4)

        def forward(self, images: torch.Tensor, _labels: torch.Tensor) -> torch.Tensor:
            return self.shared(self.shared(images)).sum()

    found = products(Twice(), Images(4), 2)
    assert [(product.name, product.m) for product in found] == [("shared", 24), ("shared call 2", 24)]


@pytest.mark.parametrize("name", by_day(NETWORKS, {"googlenet", "stories-15m"}.__contains__))
def test_work_is_proportional_to_the_mini_batch(name: str) -> None:
    one, four = (sum(shape.floating_point_operations for shape in products_of(name, batch)) for batch in (1, 4))
    assert four == 4 * one


@pytest.mark.parametrize("groups", [1, 2])
def test_the_products_of_a_convolution_are_the_convolution(groups: int) -> None:
    torch.manual_seed(1)
    convolution = nn.Conv2d(4, 6, kernel_size=3, stride=2, padding=1, groups=groups, bias=False)
    images = torch.randn(2, 4, 9, 9)

    class Only(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = convolution

        def forward(self, values: torch.Tensor, _labels: torch.Tensor) -> torch.Tensor:
            return self.conv(torch.cat([values, values[:, :1]], dim=1))

    (shape,) = products(Only(), Images(9), batch=2)
    left = convolution.weight.reshape(groups, shape.m, shape.k)
    right = functional.unfold(images, 3, padding=1, stride=2).reshape(2, groups, shape.k, shape.n)
    computed = [left[group] @ right[sample, group] for sample in range(2) for group in range(groups)]
    assert len(computed) == shape.operations
    torch.testing.assert_close(torch.cat(computed).reshape(2, 6, 5, 5), convolution(images))


def gain(rows: int, floor: float) -> float:
    """Rate of a product whose weights take as long as `floor` rows."""
    return rows / (floor + rows)


@pytest.mark.parametrize("floor", [0.0, 5.0, 20.0, 50.0])
def test_rows_are_enough_where_more_of_them_tell_nothing_new(floor: float) -> None:
    rows = sgemm.settled_rows(lambda m: gain(m, floor))
    assert rows in constants.ROWS
    assert gain(rows, floor) <= (1 + constants.ROWS_SETTLED) * gain(rows // 2, floor)
    assert rows == constants.ROWS_LEAST or gain(rows // 2, floor) > (1 + constants.ROWS_SETTLED) * gain(
        rows // 4, floor
    )


def test_rows_of_a_machine_that_never_settles_end() -> None:
    assert sgemm.settled_rows(float) == constants.ROWS[-1]


def test_matrices_double_until_caches_are_full() -> None:
    mib = constants.MIB
    sizes = [
        sgemm.doubled(*constants.ROWS_BYTES, constants.ROWS_CACHES * cache * mib) for cache in (1, 32, 33, 64, 480)
    ]
    assert sizes == [96 * mib, 96 * mib, 192 * mib, 192 * mib, 384 * mib]


@pytest.mark.parametrize("numbers", [torch.float32, torch.bfloat16])
def test_what_no_cache_holds_is_as_large_in_every_precision(
    numbers: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sgemm, "caches", lambda _: Caches(None, 50 * constants.MIB))
    peak, bandwidth, *rows = sgemm.machine(torch.device("cpu"), numbers, 256)
    assert {product.k * product.n * numbers.itemsize for product in rows} == {192 * constants.MIB}
    assert bandwidth.k * bandwidth.n * numbers.itemsize == 512 * constants.MIB
    assert (peak.m, peak.k, peak.n) == (2048, 2048, 2048)
    assert max(product.m for product in rows) == 256


def machine_of(root: Path, cores: int, sharing: int) -> Path:
    """/sys of a machine with two hardware threads on each core; so many cores share a cache of the last level."""
    for core in range(cores):
        first = core // sharing * sharing
        near, far = f"{core},{core + cores}", f"{first}-{first + sharing - 1}"
        index = [(1, "Data", "32K", near), (1, "Instruction", "64K", near), (2, "Unified", "1024K", near)]
        for cpu in (core, core + cores):
            for place, (level, type_, size, cpus) in enumerate([*index, (3, "Unified", "32768K", far)]):
                folder = root / f"sys/devices/system/cpu/cpu{cpu}/cache/index{place}"
                folder.mkdir(parents=True)
                values = {"level": level, "type": type_, "size": size, "shared_cpu_list": cpus}
                for name, value in values.items():
                    (folder / name).write_text(f"{value}\n")
    return root


def test_caches_are_what_threads_can_fill(tmp_path: Path) -> None:
    root = machine_of(tmp_path, cores=8, sharing=4)
    assert cpu_caches([0], 1, root) == Caches(2**20, 2**25)
    assert cpu_caches(range(16), 1, root) == Caches(2**20, 2**25)
    assert cpu_caches(range(16), 2, root) == Caches(2**20, 2**26)
    assert cpu_caches(range(16), 16, root) == Caches(2**20, 2**26)
    assert cpu_caches([0, 1, 8], 16, root) == Caches(2**20, 2**25)


def test_where_the_machine_tells_no_caches_they_are_taken_for_usual_ones(tmp_path: Path) -> None:
    unknown = cpu_caches([0, 1], 2, tmp_path)
    assert unknown == Caches(None, None)
    assert (unknown.core_bytes, unknown.largest_bytes) == (constants.CORE_CACHE_UNKNOWN, constants.CACHE_UNKNOWN)
    (machine_of(tmp_path, 1, 1) / "sys/devices/system/cpu/cpu0/cache/index3/size").unlink()
    assert cpu_caches([0], 1, tmp_path).largest == 2**20


def test_each_distinct_shape_and_the_reference_are_timed_at_each_mini_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    little.put(monkeypatch)
    cell = replace(SGEMM_CELL, visits=1, network="googlenet", samples=2, reference=[4096, 9192])
    kept = Recorder(cell, 0)
    sgemm.measure(cell, World.start(1), kept)
    everything = kept.arrow(SGEMM).to_pandas()
    rows = everything[everything["layer_type"] != MACHINE]
    machine = everything[everything["layer_type"] == MACHINE].set_index("layer")
    assert set(machine.index) == {"peak", "bandwidth", "rows"}
    largest = machine.loc["rows", "worker_batch"].max()
    assert set(machine.loc["rows", "worker_batch"]) == {m for m in constants.ROWS if m <= largest}
    assert largest >= constants.ROWS_LEAST
    assert machine.loc["bandwidth", "m"].tolist() == [1, 1]
    assert (machine.loc["peak", ["m", "k", "n"]] > 1).all(axis=None)

    keys = ["m", "k", "n", "operations", "worker_batch"]
    assert set(Counter(rows[keys].itertuples(index=False)).values()) == {2}, "each shape once, two samples"
    for batch in cell.batches:
        wanted = {(shape.m, shape.k, shape.n, shape.operations) for shape in products_of("googlenet", batch)}
        timed = rows[rows["worker_batch"] == batch]
        names = timed["layer"].tolist()
        assert set(timed[keys[:4]].itertuples(index=False, name=None)) == wanted | {(batch, 4096, 9192, 1)}
        assert names.count("reference") == 2
        assert "inception_3a.conv_1x1.conv" in names
    rate = 2 * rows["m"] * rows["k"] * rows["n"] * rows["operations"] / rows["seconds"] / 1e9
    assert list(rate) == pytest.approx(list(rows["gflops"]))
    assert sorted(set(rows["sample"])) == [0, 1]
    assert everything["sample"].is_monotonic_increasing, "interleaved: every shape once, then every shape again"

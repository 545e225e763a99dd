from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional

from stallpoint.cells import SgemmCell
from stallpoint.measure import sgemm
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.sgemm import Shape, shapes
from stallpoint.measure.world import World
from stallpoint.networks import NETWORKS, find
from stallpoint.records import MACHINE, SGEMM


def shapes_of(name: str, batch: int) -> list[Shape]:
    network = find(name)
    return shapes(network.outline(), network.image_size, batch)


def test_shapes_of_alexnet() -> None:
    b = 16
    conv, fc = "convolution", "fully-connected"
    assert shapes_of("alexnet", b) == [
        Shape("conv1", conv, 96, 3 * 11 * 11, 55 * 55, b),
        Shape("conv2", conv, 128, 48 * 5 * 5, 27 * 27, 2 * b),
        Shape("conv3", conv, 384, 256 * 3 * 3, 13 * 13, b),
        Shape("conv4", conv, 192, 192 * 3 * 3, 13 * 13, 2 * b),
        Shape("conv5", conv, 128, 192 * 3 * 3, 13 * 13, 2 * b),
        Shape("fc6", fc, b, 9216, 4096, 1),
        Shape("fc7", fc, b, 4096, 4096, 1),
        Shape("fc8", fc, b, 4096, 1000, 1),
    ]


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("alexnet", (0.72, 0.73)),  # 724 million without biases, counted by hand from the prototxt's sizes
        ("googlenet", (1.5, 1.7)),  # "1.5 billion multiply-adds" (Szegedy et al., section 1), less its heads
        ("resnet50", (3.8, 3.9)),  # "3.8e9 FLOPs" (He et al., Table 1: multiply-adds)
    ],
)
def test_multiply_adds_of_one_sample_are_the_published_ones(name: str, billions: tuple[float, float]) -> None:
    low, high = billions
    assert low <= sum(shape.floating_point_operations for shape in shapes_of(name, 1)) / 2e9 <= high


@pytest.mark.parametrize("name", NETWORKS)
def test_work_is_proportional_to_the_mini_batch(name: str) -> None:
    one, four = (sum(shape.floating_point_operations for shape in shapes_of(name, batch)) for batch in (1, 4))
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

    (shape,) = shapes(Only(), image_size=9, batch=2)
    left = convolution.weight.reshape(groups, shape.m, shape.k)
    right = functional.unfold(images, 3, padding=1, stride=2).reshape(2, groups, shape.k, shape.n)
    products = [left[group] @ right[sample, group] for sample in range(2) for group in range(groups)]
    assert len(products) == shape.operations
    torch.testing.assert_close(torch.cat(products).reshape(2, 6, 5, 5), convolution(images))


def test_each_distinct_shape_and_the_reference_are_timed_at_each_mini_batch() -> None:
    cell = SgemmCell(
        hardware="cpu", nodes=1, repeat=1, workers_per_node=1, device="cpu", threads_per_worker=1, seed=1,
        anonymise=False, network="googlenet", batches=[1, 2], samples=2,
    )  # fmt: skip
    kept = Recorder(cell, 0)
    sgemm.measure(cell, World.start(1), kept)
    everything = kept.arrow(SGEMM).to_pandas()
    rows = everything[everything["layer_type"] != MACHINE]
    machine = everything[everything["layer_type"] == MACHINE].set_index("layer")
    assert set(machine.index) == {"peak", "bandwidth", "rows"}
    assert set(machine.loc["rows", "worker_batch"]) == set(sgemm.PROBE_ROWS)
    assert machine.loc["bandwidth", "m"].tolist() == [1, 1]
    assert machine.loc["peak", "gflops"].median() > machine.loc["bandwidth", "gflops"].median()

    keys = ["m", "k", "n", "operations", "worker_batch"]
    assert set(Counter(rows[keys].itertuples(index=False)).values()) == {2}, "each shape once, two samples"
    for batch in cell.batches:
        wanted = {(shape.m, shape.k, shape.n, shape.operations) for shape in shapes_of("googlenet", batch)}
        timed = rows[rows["worker_batch"] == batch]
        names = timed["layer"].tolist()
        assert set(timed[keys[:4]].itertuples(index=False, name=None)) == wanted | {(batch, 4096, 9216, 1)}
        assert names.count("reference") == 2
        assert "inception_3a.conv_1x1.conv" in names
    rate = 2 * rows["m"] * rows["k"] * rows["n"] * rows["operations"] / rows["seconds"] / 1e9
    assert list(rate) == pytest.approx(list(rows["gflops"]))
    assert sorted(set(rows["sample"])) == [0, 1]
    assert everything["sample"].is_monotonic_increasing, "interleaved: every shape once, then every shape again"

"""Libraries of kernels: turned on and off, and told."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from sample_cells import TRAIN
from torch.autograd.profiler import profile

from stallpoint.errors import CannotRun
from stallpoint.measure.machine.environment import blas, cpu_clocks, cudnn_version, driver_version, libraries
from stallpoint.measure.training import precision
from stallpoint.study.kinds import cell_from_json

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    precision.choose_libraries(TRAIN)


def convolves_with_onednn() -> bool:
    """Whether a convolution calls oneDNN's operation, by PyTorch's own profiler."""
    with profile() as recorded:
        torch.nn.Conv2d(3, 8, 3)(torch.zeros(2, 3, 16, 16))
    return any("mkldnn" in operation.key for operation in recorded.key_averages())


@pytest.mark.parametrize("chosen", [True, False, None])
def test_a_convolution_takes_onednn_where_the_record_says_so(chosen: bool | None) -> None:
    precision.choose_libraries(replace(TRAIN, onednn=chosen))
    assert libraries(CPU)["onednn_in_force"] == convolves_with_onednn() == (chosen is not False)


@pytest.mark.skipif(torch.backends.cudnn.is_available(), reason="this PyTorch has cuDNN, so that it can be asked for")
def test_a_library_that_pytorch_has_not_cannot_be_asked_for() -> None:
    with pytest.raises(CannotRun, match=r"no cuDNN.*\(cudnn: true\)"):
        precision.choose_libraries(replace(TRAIN, device="cuda", cudnn=True))


def test_a_cell_that_leaves_libraries_to_pytorch_says_nothing_of_them() -> None:
    assert "onednn" not in TRAIN.to_json()
    without = replace(TRAIN, onednn=False)
    assert cell_from_json(TRAIN.to_json()) == TRAIN
    assert cell_from_json(without.to_json()) == without


def test_versions_are_those_that_libraries_tell() -> None:
    assert [cudnn_version(number) for number in (8907, 90_100, 91_002, None)] == ["8.9.7", "9.1.0", "9.10.2", ""]
    assert blas("BLAS_INFO=mkl, ...\n  - Intel(R) oneAPI Math Kernel Library Version 2024.2-Product") == "mkl 2024.2"
    assert blas("  - Build settings: BLAS_INFO=open, BUILD_TYPE=Release") == "open"
    proprietary = (
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39 UTC 2023\nGCC version:"
    )
    opened = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build  (archlinux-builder@)"
    assert [driver_version(text) for text in (proprietary, opened, "?")] == ["535.54.03", "550.54.15", ""]
    found = libraries(CPU)
    assert found["onednn"] in torch.__config__.show()
    assert not any(found[name] for name in ("cuda", "cudnn", "nccl", "driver", "cudnn_in_force"))


def test_clocks_are_those_of_the_kernel_or_of_the_models_name(tmp_path: Path) -> None:
    known = cpu_clocks("Intel(R) Xeon(R) CPU E5-2680 v3 @ 2.50GHz", tmp_path)
    assert known == {"cpu_nominal_clock": 2.5e9, "cpu_max_clock": None}
    (tmp_path / "base_frequency").write_text("2400000\n")
    (tmp_path / "cpuinfo_max_freq").write_text("3700000\n")
    known = cpu_clocks("Intel(R) Xeon(R) Gold 6442Y", tmp_path)
    assert known == {"cpu_nominal_clock": 2.4e9, "cpu_max_clock": 3.7e9}

"""The libraries of kernels that PyTorch computes with here: their versions, and whether they are in force."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

_DRIVER = Path("/proc/driver/nvidia/version")
_BACKENDS: Any = torch.backends
_NCCL: Any = torch.cuda.nccl


def libraries(device: torch.device) -> dict[str, Any]:
    """Columns of `tables.ENVIRONMENTS`; what a CPU does not compute with is empty or false there."""
    gpu, config = device.type == "cuda", torch.__config__.show()
    nccl = gpu and torch.distributed.is_available() and torch.distributed.is_nccl_available()
    cudnn, onednn = _BACKENDS.cudnn, _BACKENDS.mkldnn
    return {
        "cuda": torch.version.cuda or "" if gpu else "",
        "cudnn": cudnn_version(cudnn.version()) if gpu else "",
        "nccl": ".".join(map(str, _NCCL.version())) if nccl else "",
        "driver": driver_version(_DRIVER.read_text()) if gpu and _DRIVER.exists() else "",
        "blas": blas(config),
        "onednn": _first(r"(?:MKL-DNN|oneDNN) v(\S+)", config),
        "cudnn_in_force": gpu and cudnn.is_available() and bool(cudnn.enabled),
        "onednn_in_force": not gpu and onednn.is_available() and bool(onednn.enabled),
    }


def cudnn_version(number: int | None) -> str:
    """``9.1.2`` of 90102, ``8.9.7`` of 8907: CUDNN_VERSION counts majors in 10000s since version 9, in 1000s before."""
    if number is None:
        return ""
    unit = 10_000 if number >= 90_000 else 1000
    return f"{number // unit}.{number % unit // 100}.{number % 100}"


def driver_version(text: str) -> str:
    """``535.54.03``, from the text of /proc/driver/nvidia/version."""
    return _first(r"Kernel Module\b.*?\s(\d+(?:\.\d+)+)\s", text)


def blas(config: str) -> str:
    """``mkl 2024.2``, from PyTorch's account of how it was built; other libraries tell no version."""
    name = _first(r"BLAS_INFO=([^,\s]+)", config)
    version = _first(r"Math Kernel Library Version (\d+(?:\.\d+)*)", config) if name == "mkl" else ""
    return f"{name} {version}".strip()


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found[1] if found else ""

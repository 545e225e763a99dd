"""Precision of a job's matrix products (float32, or a faster type of the device), and the libraries that compute them:
cuDNN on a GPU, oneDNN on a CPU."""

from __future__ import annotations

from typing import Any

import torch

from stallpoint.errors import CannotRun
from stallpoint.study.cells import Cell

NUMBERS = {"float32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""Type of the values in matrix products, by precision."""
LOSS_SCALE = 1024.0
"""Factor on the loss under ``fp16``, which keeps small gradients above 6e-8, as smaller numbers are 0 in half precision
(Micikevicius et al.: Mixed Precision Training, ICLR 2018, section 3.2, use constants from 8 to 32768)."""


def allow_only(precision: str) -> None:
    """Let products round factors to TF32 only if `precision` is ``tf32``; PyTorch's defaults differ by library."""
    is_tf32 = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = is_tf32
    torch.backends.cudnn.allow_tf32 = is_tf32


def forward_context(precision: str, device: torch.device) -> torch.autocast:
    """Return the context of a forward pass: with ``bf16`` or ``fp16``, matrix products are in this precision. Weights
    and gradients stay in float32."""
    kind = NUMBERS[precision]
    half = kind if kind.itemsize == 2 else torch.bfloat16  # even a disabled autocast needs a 16-bit type
    return torch.autocast(device.type, dtype=half, enabled=kind.itemsize == 2)


def loss_scale(precision: str) -> float:
    """Return the factor by which the backward pass multiplies the loss; the update divides gradients by it."""
    return LOSS_SCALE if precision == "fp16" else 1.0


def in_force(precision: str, device: torch.device) -> str:
    """Return the precision of products on `device`, as PyTorch reports it."""
    with forward_context(precision, device), torch.no_grad():
        product = torch.ones(1, 1, device=device) @ torch.ones(1, 1, device=device)
    tf32 = device.type == "cuda" and torch.backends.cuda.matmul.allow_tf32
    return {torch.bfloat16: "bf16", torch.float16: "fp16"}.get(product.dtype, "tf32" if tf32 else "float32")


_BACKENDS: Any = torch.backends


def choose_libraries(cell: Cell) -> None:
    """Turn cuDNN and oneDNN on or off by the cell's settings; `CannotRun` if PyTorch lacks a required library."""
    if cell.cudnn and not _BACKENDS.cudnn.is_available():
        raise CannotRun("this PyTorch has no cuDNN, or finds none (cudnn: true)")
    if cell.onednn and not _BACKENDS.mkldnn.is_available():
        raise CannotRun("this PyTorch was built without oneDNN (onednn: true)")
    _BACKENDS.cudnn.enabled = cell.cudnn is not False
    _BACKENDS.mkldnn.set_flags(_enabled=cell.onednn is not False)
